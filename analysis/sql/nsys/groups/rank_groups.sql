-- Groups of ranks that communicate, and what they are for. The kind comes from the group's name if the
-- program gave it one that is known, else from its traffic within the analyzed window. If the traffic fits
-- several kinds, the kind is unknown.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- group_id VARCHAR: the communicator of collectives, or the ranks that exchange messages
-- ranks VARCHAR: ranks of the group; NULL if unknown
-- size BIGINT: number of ranks in the group; NULL if unknown
-- captured BIGINT: number of ranks of the group that were captured
-- kind VARCHAR: data (gradients are summed), sharded data (parameters are gathered and gradients scattered),
--   tensor, pipeline, expert, context or unknown
-- kind_source VARCHAR: source of the kind: name or traffic; NULL if the kind is unknown
-- why VARCHAR: evidence for the kind, or what is missing
-- description VARCHAR: name that the program gave the group; NULL if it gave none
-- operations VARCHAR: operations of the group, separated by commas
-- per_step DOUBLE: number of communication kernels per step on each rank; NULL if there are no steps
-- step_bytes DOUBLE: bytes per step on each rank, counted as in nccl_collectives; NULL if unknown
-- members BIGINT[]: ranks of the group in ascending order; NULL if unknown
CREATE VIEW rank_groups AS
WITH known AS (
    SELECT
        f.*,
        c.description,
        -- The messages of some ranks do not show with whom the others exchange messages.
        CASE
            WHEN f.message_ranks IS NULL OR (c.stated AND group_kind(c.description) IS NOT NULL)
                THEN c.members
            WHEN f.captured = f.message_ranks THEN f.message_ranks
        END AS members,
        g.pattern,
        if(f.message_ranks IS NULL, coalesce(len(members), f.participants), len(members)) AS size,
        f.bytes / f.steps AS step_bytes,
        coalesce(f.reduced / f.weight, 0) AS reduced_share,
        coalesce(f.exchanged / f.weight, 0) AS exchanged_share,
        coalesce((f.gathered + coalesce(f.scattered, 0)) / f.weight, 0) AS sharded_share,
        coalesce(f.reduced_forward / f.reduced, 0) AS reduced_early,
        coalesce(f.scattered_forward / f.scattered, 0) AS scattered_early
    FROM _group_features AS f
    LEFT JOIN _communicators AS c ON c.job = f.job AND c.communicator = f.communicator
    LEFT JOIN (
        SELECT job, ranks, any_value(pattern ORDER BY pattern) AS pattern
        FROM _message_groups
        GROUP BY job, ranks
    ) AS g ON g.job = f.job AND g.ranks = f.message_ranks
),
judged AS (
    SELECT
        *,
        group_kind(description) AS named,
        CASE
            WHEN pattern = 'ring' THEN 'context'
            WHEN pattern = 'chain' OR (pattern = 'line' AND len(message_ranks) > 2) THEN 'pipeline'
            WHEN pattern IS NOT NULL OR communicator IS NULL THEN NULL
            WHEN exchanged_share >= threshold('groups.main_share') THEN CASE
                WHEN exchanged_for_attention >= threshold('groups.attention_share') * exchanges THEN 'context'
                WHEN varies THEN 'expert'
            END
            WHEN steps IS NULL OR NOT phased OR step_bytes < threshold('groups.small_bytes') THEN NULL
            WHEN reduced_share >= threshold('groups.main_share') THEN CASE
                WHEN reduced_early >= threshold('groups.forward_share') AND repeats >= 2 THEN 'tensor'
                WHEN reduced_early <= threshold('groups.backward_share') THEN 'data'
            END
            WHEN scattered IS NOT NULL AND sharded_share >= threshold('groups.main_share') THEN CASE
                WHEN scattered_early >= threshold('groups.forward_share') THEN 'tensor'
                WHEN scattered_early > threshold('groups.backward_share') THEN NULL
                WHEN gathered_for_attention >= threshold('groups.main_share') * gathers AND gathers > 0
                    THEN 'context'
                ELSE 'sharded data'
            END
        END AS seen
    FROM known
)
SELECT
    job,
    group_id,
    ranks_text(members) AS ranks,
    size,
    len(captured) AS captured,
    coalesce(if(named = 'data' AND seen = 'sharded data', seen, named), seen, 'unknown') AS kind,
    CASE WHEN named IS NOT NULL THEN 'name' WHEN seen IS NOT NULL THEN 'traffic' END AS kind_source,
    CASE
        WHEN named IS NOT NULL THEN concat('the program names the group ', description)
        WHEN pattern = 'ring' AND attends THEN 'messages go around the ranks before attention kernels'
        WHEN pattern = 'ring' THEN 'each rank always sends to the next and receives from the one before'
        WHEN pattern = 'chain'
            THEN 'neighbors send as many messages to each other as they receive, at different times'
        WHEN pattern = 'line' AND seen IS NULL
            THEN 'messages from one rank to another fit the stages of a pipeline and the transfer of a cache'
        WHEN pattern = 'line' THEN 'each rank sends to the next one only'
        WHEN pattern IS NOT NULL THEN 'the messages fit neither the stages of a pipeline nor a ring'
        WHEN communicator IS NULL THEN 'the capture does not state which communicator the kernels belong to; '
            'nsys does with nsys export --include-blobs=true, torch.profiler since PyTorch 2.2'
        WHEN exchanged_share >= threshold('groups.main_share') THEN CASE seen
            WHEN 'context' THEN 'all-to-all before attention kernels'
            WHEN 'expert' THEN 'all-to-all whose sizes change from step to step'
            ELSE 'all-to-all of constant sizes fits experts, sequence parallelism and embeddings; '
                'only a name of the group would show which'
        END
        WHEN steps IS NULL THEN 'no steps were found, so it is unknown what is done once per step'
        WHEN step_bytes < threshold('groups.small_bytes')
            THEN concat('only ', bytes_text(step_bytes), ' per step, too little for gradients or activations')
        WHEN NOT phased
            THEN 'one thread launches all work, so forward and backward pass are not distinguishable'
        WHEN seen = 'data' THEN
            printf('all-reduce in or after the backward pass, %.4g times per step', per_step)
        WHEN seen = 'tensor' AND reduced_share >= threshold('groups.main_share') THEN
            printf('all-reduce of the same size %.4g times per step, also in the forward pass', repeats)
        WHEN seen = 'tensor' THEN 'reduce-scatter in the forward pass and in the backward pass'
        WHEN seen = 'context' THEN 'all-gather before attention kernels, reduce-scatter in the backward pass'
        WHEN seen = 'sharded data' THEN 'all-gather, and reduce-scatter only in or after the backward pass'
        ELSE concat(
            'the pattern of ', operations, ' fits no kind, or several; only a name of the group would show'
        )
    END AS why,
    description,
    operations,
    per_step,
    step_bytes,
    members
FROM judged
ORDER BY job, kind, members, group_id;
