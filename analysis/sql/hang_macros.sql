-- Ranks as a text: 0-2, 5. The list is sorted and has each rank once.
CREATE MACRO rank_ranges(ranks) AS array_to_string(list_transform(
    list_zip(
        list_filter(ranks, lambda x, i: i = 1 OR ranks[i - 1] < x - 1),
        list_filter(ranks, lambda x, i: i = len(ranks) OR ranks[i + 1] > x + 1)
    ),
    lambda ends: CASE WHEN ends[1] = ends[2] THEN ends[1]::VARCHAR ELSE concat(ends[1], '-', ends[2]) END
), ', ');

-- What all ranks must agree on in a call: operation, number of elements, data type. NCCL sees numbers, no
-- shapes; in some operations they may differ. Only one rank has the input of a scatter.
CREATE MACRO agreed_operands(operation, input_elements, output_elements, input_types, output_types) AS
    concat_ws(
        ' ',
        CASE
            WHEN regexp_matches(operation, '^all_?to_?all|_v($|_)') THEN NULL
            WHEN operation = 'scatter' THEN output_elements
            ELSE coalesce(input_elements, output_elements)
        END,
        nullif(split_part(
            if(operation = 'scatter', output_types, coalesce(input_types, output_types)), ',', 1
        ), '')
    );

-- Name of a process group.
CREATE MACRO group_label(name, description) AS coalesce(description, 'group ' || name);

-- Name of a call: all_reduce #41, or send to rank 3.
CREATE MACRO call_label(operation, sequence, rank, source, target) AS
    CASE
        WHEN source IS NULL THEN concat(operation, ' #', sequence)
        WHEN rank = source THEN concat('send to rank ', target)
        ELSE concat('recv from rank ', source)
    END;
