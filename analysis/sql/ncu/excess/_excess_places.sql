-- Excess sectors, wavefronts, operations, instructions or branches of each SASS instruction, by problem; 0
-- without excess. `counted` is the total count of the instruction. Loads, stores and atomics are
-- distinguished by opcode, because the counters of an instruction do not distinguish them.
CREATE VIEW _excess_places AS
WITH counters AS (
    SELECT
        report_id,
        launch_id,
        key_int AS address,
        any_value(value) FILTER (metric = 'memory_l2_theoretical_sectors_global') AS sectors,
        any_value(value) FILTER (metric = 'memory_l2_theoretical_sectors_global_ideal') AS sectors_ideal,
        any_value(value) FILTER (metric = 'memory_l1_wavefronts_shared') AS wavefronts,
        any_value(value) FILTER (metric = 'memory_l1_wavefronts_shared_ideal') AS wavefronts_ideal,
        any_value(value) FILTER (metric = 'smsp__branch_targets_threads_divergent') AS divergent,
        any_value(value) FILTER (metric = 'thread_inst_executed_true') AS operations
    FROM ncu_instances
    WHERE metric IN (
        'memory_l2_theoretical_sectors_global', 'memory_l2_theoretical_sectors_global_ideal',
        'memory_l1_wavefronts_shared', 'memory_l1_wavefronts_shared_ideal',
        'smsp__branch_targets_threads_divergent', 'thread_inst_executed_true'
    )
    GROUP BY report_id, launch_id, key_int
),
instructions AS (
    SELECT
        s.report_id,
        s.launch_id,
        s.pc,
        s.sass,
        s.file,
        s.line,
        s.text,
        s.executions,
        c.sectors,
        c.sectors - c.sectors_ideal AS excess_sectors,
        c.wavefronts,
        c.wavefronts - c.wavefronts_ideal AS excess_wavefronts,
        c.divergent,
        c.operations,
        CASE
            WHEN regexp_matches(s.opcode, '^(ATOM|RED(G|S|$))') THEN 'atomic'
            WHEN regexp_matches(s.opcode, '^(LDL|STL)$') THEN 'local'
            WHEN starts_with(s.opcode, 'ST') THEN 'store'
            ELSE 'load'
        END AS access
    FROM (
        SELECT *, regexp_extract(sass, '^(?:@!?U?P\w+\s+)?([A-Z0-9]+)', 1) AS opcode
        FROM ncu_source
    ) AS s
    LEFT JOIN counters AS c USING (report_id, launch_id, address)
),
problems AS (
    SELECT
        * EXCLUDE (sectors, excess_sectors, wavefronts, excess_wavefronts, divergent, operations, access),
        unnest([
            CASE WHEN sectors IS NOT NULL THEN
                {
                    problem: 'uncoalesced_' || access,
                    unit: 'sectors',
                    excess: excess_sectors,
                    counted: sectors
                }
            END,
            {
                problem: 'bank_conflict',
                unit: 'wavefronts',
                excess: excess_wavefronts,
                counted: wavefronts
            },
            CASE WHEN access = 'atomic' THEN
                {
                    problem: 'atomics',
                    unit: 'operations',
                    excess: operations - executions,
                    counted: operations
                }
            END,
            CASE WHEN access = 'local' THEN
                {
                    problem: 'local_spill',
                    unit: 'instructions',
                    excess: executions::DOUBLE,
                    counted: executions::DOUBLE
                }
            END,
            {
                problem: 'divergence',
                unit: 'branches',
                excess: divergent,
                counted: executions::DOUBLE
            }
        ], recursive := true)
    FROM instructions
)
SELECT
    report_id,
    launch_id,
    pc,
    sass,
    file,
    line,
    text,
    problem,
    unit,
    -- An atomic with inactive or predicated threads has no excess beyond its first operation.
    greatest(excess, 0)::BIGINT AS excess,
    counted::BIGINT AS counted
FROM problems
WHERE excess IS NOT NULL;
