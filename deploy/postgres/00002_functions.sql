-- The functions that lobsink calls. `lobsink setup` applies this file.
--
-- A change of what a function takes or returns makes a new one (_v2), so that
-- programs of both versions work while they are exchanged.
--
-- Parameters begin with in_. Where a name is a column and a variable, it is the
-- column.

-- +goose Up

-- The clock: at the call, not at the begin of the transaction.
-- +goose StatementBegin
create function lobsink_now() returns bigint
language sql volatile
as $$
  select (extract(epoch from clock_timestamp()) * 1000000000)::bigint
$$;
-- +goose StatementEnd

-- What a flush carries for one document. Its text is some of the texts of the
-- flush, see texts_before.
create type lobsink_group_v1 as (
  doc_key             text,
  -- The sequences of its first and last fragment.
  seq_from            bigint,
  seq_to              bigint,
  -- The row that the owner believes to be stored; all 0: none.
  believed_generation bigint,
  believed_state      smallint,
  believed_life       bigint,
  believed_seq        bigint,
  believed_bytes      bigint,
  believed_crc        bigint,
  -- The row after the group, whose mark is (life of the flush, seq_to).
  after_generation    bigint,
  after_state         smallint,
  after_first_seq     bigint,
  after_fragments     bigint,
  after_holes         bigint,
  after_late          bigint,
  after_bytes         bigint,
  after_units         bigint,
  after_chunks        bigint,
  after_crc           bigint,
  after_reason        text,
  -- How many texts of the flush belong to the groups before, and to this one.
  texts_before        int,
  texts               int,
  -- The place of the group in the flush, from 1.
  n                   bigint
);

-- What became of a group: 1 already there, 2 stale, 3 closed, 4 appended,
-- 5 rejected, with the stored row as it was before; all 0: there was none. code
-- and message say why a group was rejected.
create type lobsink_answer_v1 as (
  n          bigint,
  status     smallint,
  code       text,
  message    text,
  generation bigint,
  state      smallint,
  life       bigint,
  seq        bigint,
  first_seq  bigint,
  fragments  bigint,
  holes      bigint,
  late       bigint,
  bytes      bigint,
  units      bigint,
  chunks     bigint,
  crc        bigint,
  reason     text
);

-- The reply to a flush: first one row with accepted and the fence row as it
-- stands, then, if it was accepted, a row with the answer of each group.
create type lobsink_reply_v1 as (
  accepted boolean,
  fence    lobsink_fences,
  answer   lobsink_answer_v1
);

-- Decides the answers of groups and appends those that are to be appended, all in
-- one statement. Only for a caller that holds the lock of the fence row.
-- +goose StatementBegin
create function lobsink_append_v1(in_partition int, in_life bigint, in_groups lobsink_group_v1[], in_texts bytea[])
returns setof lobsink_answer_v1
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at_time constant bigint := lobsink_now();
begin
  return query
  with compared as materialized (
    -- Each group beside the stored row, or beside an ID for a new one.
    select g.*,
           d.id is null as is_new,
           coalesce(d.id, nextval('lobsink_documents_id_seq')) as id,
           coalesce(d.generation, 0) as generation, coalesce(d.state, 0::smallint) as state,
           coalesce(d.life, 0) as life, coalesce(d.seq, 0) as seq, coalesce(d.first_seq, 0) as first_seq,
           coalesce(d.fragments, 0) as fragments, coalesce(d.holes, 0) as holes, coalesce(d.late, 0) as late,
           coalesce(d.bytes, 0) as bytes, coalesce(d.units, 0) as units, coalesce(d.chunks, 0) as chunks,
           coalesce(d.crc, 0) as crc, coalesce(d.reason, '') as reason
      from unnest(in_groups) g
      left join lobsink_documents d on d.doc_key = g.doc_key
  ),
  answered as materialized (
    -- The first answer that is true, in the order of lobwriter.Status. Appended
    -- has to be true as well: what compares as NULL has no answer.
    select c.*,
           case
             when (life, seq) >= (in_life, seq_to) then 1
             when (generation, state, life, seq, bytes, crc) is distinct from
                  (believed_generation, believed_state, believed_life, believed_seq, believed_bytes, believed_crc) then 2
             when (life, seq) >= (in_life, seq_from) then 2
             when state in (2, 4) and (texts > 0 or after_state <> believed_state) then 3
             when (life, seq) < (in_life, seq_from) then 4
           end::smallint as status
      from compared c
  ),
  made as (
    insert into lobsink_documents
          (id, doc_key, partition, generation, state, life, seq, first_seq, fragments, holes, late,
           bytes, units, chunks, crc, reason, created_at, updated_at)
    select id, doc_key, in_partition, after_generation, after_state, in_life, seq_to, after_first_seq, after_fragments, after_holes, after_late,
           after_bytes, after_units, after_chunks, after_crc, after_reason, at_time, at_time
      from answered
     where status = 4 and is_new
  ),
  moved as (
    update lobsink_documents d
       set generation = a.after_generation, state = a.after_state, life = in_life, seq = a.seq_to, first_seq = a.after_first_seq,
           fragments = a.after_fragments, holes = a.after_holes, late = a.after_late,
           bytes = a.after_bytes, units = a.after_units, chunks = a.after_chunks, crc = a.after_crc, reason = a.after_reason,
           updated_at = at_time
      from answered a
     where d.id = a.id and a.status = 4 and not a.is_new
  ),
  filled as (
    insert into lobsink_chunks (document, generation, n, body)
    select a.id, a.after_generation, a.after_chunks - a.texts + t, convert_from(in_texts[a.texts_before + t], 'UTF8')
      from answered a, generate_series(1, a.texts) t
     where a.status = 4
  )
  select n, status, ''::text, ''::text,
         generation, state, life, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason
    from answered
   order by n;
end
$$;
-- +goose StatementEnd

-- Flush: see lobwriter.Store. Called in autocommit, call and commit are one round
-- trip.
--
-- Its first statement takes the lock of the fence row. As the isolation level is
-- read committed, each statement after it sees all that was committed before the
-- lock was given: fence and documents are as the last owner left them. In one
-- statement with the lock they would be older than the lock.
--
-- An error undoes everything. With in_one_by_one each group is undone for itself
-- if it is its content that the database refuses; that is slower.
-- +goose StatementBegin
create function lobsink_flush_v1(
  in_one_by_one          boolean,
  in_partition           int,
  in_life                bigint,
  in_epoch               bigint,
  in_claim_id            text,
  in_flush               bigint,
  in_checkpoint          bigint,
  in_checkpoint_time     bigint,
  in_highest             bigint,
  in_highest_time        bigint,
  -- The groups, an array for each field of lobsink_group_v1 but the last.
  in_doc_key             text[],
  in_seq_from            bigint[],
  in_seq_to              bigint[],
  in_believed_generation bigint[],
  in_believed_state      smallint[],
  in_believed_life       bigint[],
  in_believed_seq        bigint[],
  in_believed_bytes      bigint[],
  in_believed_crc        bigint[],
  in_after_generation    bigint[],
  in_after_state         smallint[],
  in_after_first_seq     bigint[],
  in_after_fragments     bigint[],
  in_after_holes         bigint[],
  in_after_late          bigint[],
  in_after_bytes         bigint[],
  in_after_units         bigint[],
  in_after_chunks        bigint[],
  in_after_crc           bigint[],
  in_after_reason        text[],
  in_texts_before        int[],
  in_texts_of            int[],
  -- The text of all groups, in their order. As bytes: what is no text is then the
  -- fault of one group, and not of the call.
  in_texts               bytea[]
)
returns setof lobsink_reply_v1
language plpgsql volatile
-- Documents are found by an index, also by a plan that was made while there were
-- so few of them that reading them all was cheaper.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  fence   lobsink_fences;
  claimed boolean;
  refuser text;
  groups  lobsink_group_v1[];
  answers lobsink_answer_v1[] := '{}';
begin
  select f.* into fence from lobsink_fences f where partition = in_partition for update;
  claimed := found;
  if not claimed then
    select in_partition, life, 0, '', 0, 0, 0, 0, 0 into fence from lobsink_binding;
  end if;
  if not claimed or (fence.life, fence.epoch, fence.claim_id, fence.flush)
                    is distinct from (in_life, in_epoch, in_claim_id, in_flush) then
    return next row(false, fence, null)::lobsink_reply_v1;
    return;
  end if;

  groups := array(
    select row(g.*)::lobsink_group_v1
      from unnest(
             in_doc_key, in_seq_from, in_seq_to,
             in_believed_generation, in_believed_state, in_believed_life, in_believed_seq, in_believed_bytes, in_believed_crc,
             in_after_generation, in_after_state, in_after_first_seq, in_after_fragments, in_after_holes, in_after_late,
             in_after_bytes, in_after_units, in_after_chunks, in_after_crc, in_after_reason,
             in_texts_before, in_texts_of) with ordinality g);

  if not in_one_by_one then
    answers := array(select a from lobsink_append_v1(in_partition, in_life, groups, in_texts) a);
  else
    for i in 1 .. cardinality(groups) loop
      begin
        answers := answers || array(select a from lobsink_append_v1(in_partition, in_life, array[groups[i]], in_texts) a);
      exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
        get stacked diagnostics refuser = table_name;
        if sqlstate = '23505' and refuser = 'lobsink_documents' then
          raise; -- somebody made this document without the lock: the next try sees it
        end if;
        answers := answers || array(
          select row(i, 5, sqlstate, sqlerrm,
                     coalesce(d.generation, 0), coalesce(d.state, 0), coalesce(d.life, 0), coalesce(d.seq, 0), coalesce(d.first_seq, 0),
                     coalesce(d.fragments, 0), coalesce(d.holes, 0), coalesce(d.late, 0),
                     coalesce(d.bytes, 0), coalesce(d.units, 0), coalesce(d.chunks, 0), coalesce(d.crc, 0), coalesce(d.reason, ''))
                 ::lobsink_answer_v1
            from (values (in_doc_key[i])) g (doc_key)
            left join lobsink_documents d on d.doc_key = g.doc_key);
      end;
    end loop;
  end if;

  fence.flush := fence.flush + 1;
  if in_checkpoint > fence.checkpoint
     and cardinality(groups) = (select count(*) from unnest(answers) where status in (1, 4)) then
    fence.checkpoint := in_checkpoint;
    fence.checkpoint_time := in_checkpoint_time;
  end if;
  if in_highest > fence.highest then
    fence.highest := in_highest;
    fence.highest_time := in_highest_time;
  end if;
  update lobsink_fences
     set flush = fence.flush,
         checkpoint = fence.checkpoint, checkpoint_time = fence.checkpoint_time,
         highest = fence.highest, highest_time = fence.highest_time
   where partition = in_partition;

  return next row(true, fence, null)::lobsink_reply_v1;
  return query select null::boolean, null::lobsink_fences, a from unnest(answers) a;
end
$$;
-- +goose StatementEnd

-- Claim: see lobwriter.Store. It waits for a flush of the previous owner, and
-- nothing waits for it meanwhile: a renewal takes the lease row only, which is
-- written last.
--
-- outcome: claimed, with the fence row; held, with who holds the lease and for how
-- many nanoseconds; or unknown partition.
-- +goose StatementBegin
create function lobsink_claim_v1(
  in_partition int, in_member_id text, in_claim_id text, in_lease bigint,
  out outcome text, out holder text, out held_for bigint, out fence lobsink_fences
)
language plpgsql volatile
as $$
#variable_conflict use_column
begin
  perform from lobsink_binding where in_partition >= 0 and in_partition < partitions;
  if not found then
    outcome := 'unknown partition';
    return;
  end if;

  -- Whoever cannot have the lease does not queue for the fence row.
  select member_id, lease_until - lobsink_now() into holder, held_for
    from lobsink_leases
   where partition = in_partition and member_id <> in_member_id and lease_until > lobsink_now();
  if found then
    outcome := 'held';
    return;
  end if;

  insert into lobsink_fences (partition, life, epoch, claim_id, flush, checkpoint, checkpoint_time, highest, highest_time)
  select in_partition, life, 0, '', 0, 0, 0, 0, 0 from lobsink_binding
  on conflict do nothing;
  select f.* into fence from lobsink_fences f where partition = in_partition for update;

  -- The lease may have been taken or renewed meanwhile.
  insert into lobsink_leases as l (partition, member_id, epoch, claim_id, lease_until)
  values (in_partition, in_member_id, fence.epoch + 1, in_claim_id, lobsink_now() + in_lease)
  on conflict (partition) do update
     set member_id = excluded.member_id, epoch = excluded.epoch, claim_id = excluded.claim_id, lease_until = excluded.lease_until
   where l.member_id = excluded.member_id or l.lease_until <= lobsink_now();
  if not found then
    outcome := 'held';
    select member_id, lease_until - lobsink_now() into holder, held_for from lobsink_leases where partition = in_partition;
    return;
  end if;

  outcome := 'claimed';
  update lobsink_fences f set epoch = f.epoch + 1, claim_id = in_claim_id, flush = 0
   where partition = in_partition
  returning f.* into fence;
end
$$;
-- +goose StatementEnd

-- +goose Down

drop function lobsink_claim_v1;
drop function lobsink_flush_v1;
drop function lobsink_append_v1;
drop type lobsink_reply_v1;
drop type lobsink_answer_v1;
drop type lobsink_group_v1;
drop function lobsink_now;
