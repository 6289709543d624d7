-- The tables of lobsink in PostgreSQL. `lobsink setup` applies this file.
--
-- Times are Unix nanoseconds. Sequences are those of the stream. Keys are
-- compared byte by byte, whatever the database's collation is.

-- +goose Up

-- Which stream the tables serve. There is one row; its stream is NULL until
-- lobsink runs for the first time.
create table lobsink_binding (
  id          int    not null primary key check (id = 1),
  database_id text   not null,
  life        bigint not null default 0,
  stream      text,
  created     bigint,
  partitions  int
);

insert into lobsink_binding (id, database_id)
values (1, left(replace(gen_random_uuid()::text, '-', ''), 8));

-- The fence row of each partition. A flush locks it and compares life, epoch,
-- claim_id and flush before it looks at anything else.
create table lobsink_fences (
  partition       int    not null primary key,
  life            bigint not null,
  epoch           bigint not null,
  claim_id        text   not null,
  flush           bigint not null,
  checkpoint      bigint not null,
  checkpoint_time bigint not null,
  highest         bigint not null,
  highest_time    bigint not null
) with (fillfactor = 10);

-- Until when nobody else may claim a partition, and by which claim. Apart from
-- the fence row, so that a renewal never waits for a flush.
create table lobsink_leases (
  partition   int    not null primary key,
  member_id   text   not null,
  epoch       bigint not null,
  claim_id    text   not null,
  lease_until bigint not null
) with (fillfactor = 10);

-- The running lobsinks.
create table lobsink_members (
  id         text   not null primary key,
  name       text   not null,
  version    text   not null,
  seen_until bigint not null
);

-- One row for each document. state: 1 open, 2 complete, 3 incomplete,
-- 4 quarantined. life and seq are the last message that is stored; units is the
-- length in characters; crc is the CRC-32C of the text. Half of each page stays
-- free, so that an update finds room beside the old version and touches no
-- index.
create table lobsink_documents (
  id         bigint   not null primary key generated always as identity,
  doc_key    text     not null collate "C",
  partition  int      not null,
  generation bigint   not null,
  state      smallint not null,
  life       bigint   not null,
  seq        bigint   not null,
  first_seq  bigint   not null,
  fragments  bigint   not null,
  holes      bigint   not null,
  late       bigint   not null,
  bytes      bigint   not null,
  units      bigint   not null,
  chunks     bigint   not null,
  crc        bigint   not null,
  reason     text     not null,
  created_at bigint   not null,
  updated_at bigint   not null,
  constraint lobsink_documents_key unique (doc_key)
) with (fillfactor = 50);

-- The text of a document in one of its generations, in the order of n, from 1.
create table lobsink_chunks (
  document   bigint not null references lobsink_documents (id),
  generation bigint not null,
  n          bigint not null,
  body       text   not null,
  primary key (document, generation, n)
);

-- lz4 takes a quarter of the processor time of the default and about the same
-- room. Not every server is built with it.
-- +goose StatementBegin
do $$
begin
  alter table lobsink_chunks alter column body set compression lz4;
exception when feature_not_supported or invalid_parameter_value then
  null; -- the server's default does
end
$$;
-- +goose StatementEnd

-- Whole documents, for any client. A text of 1 GiB or more does not fit into a
-- value: read its chunks.
create view lobsink_texts as
select d.doc_key,
       case d.state when 1 then 'open' when 2 then 'complete' when 3 then 'incomplete' when 4 then 'quarantined' end as state,
       d.bytes,
       coalesce((select string_agg(c.body, '' order by c.n)
                   from lobsink_chunks c
                  where c.document = d.id and c.generation = d.generation), '') as text
  from lobsink_documents d;

-- The clock: at the statement, not at the beginning of the transaction.
-- +goose StatementBegin
create function lobsink_now() returns bigint language sql volatile as $$
  select (extract(epoch from clock_timestamp()) * 1000000000)::bigint
$$;
-- +goose StatementEnd

-- Appends the groups for which append is true. Arrays that begin with a_ are the
-- rows after the groups, in the order of keys; ids are those of the stored rows,
-- NULL where there is none. Chunks are in the order of their groups; chunk_group
-- counts from 1.
-- +goose StatementBegin
create function lobsink_append_v1(
  p_partition int, p_life bigint,
  keys text[], ids bigint[], append boolean[],
  a_generation bigint[], a_state smallint[], a_seq bigint[], a_first bigint[], a_fragments bigint[], a_holes bigint[],
  a_late bigint[], a_bytes bigint[], a_units bigint[], a_chunks bigint[], a_crc bigint[], a_reason text[],
  chunk_group int[], chunk_n bigint[], chunk_body bytea[]
) returns void language plpgsql volatile as $$
declare
  t bigint := lobsink_now();
begin
  insert into lobsink_documents
        (doc_key, partition, generation, state, life, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason,
         created_at, updated_at)
  select g.doc_key, p_partition, g.generation, g.state, p_life, g.seq, g.first_seq, g.fragments, g.holes, g.late, g.bytes, g.units,
         g.chunks, g.crc, g.reason, t, t
    from unnest(keys, ids, append, a_generation, a_state, a_seq, a_first, a_fragments, a_holes, a_late, a_bytes, a_units,
                a_chunks, a_crc, a_reason)
      as g(doc_key, id, append, generation, state, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason)
   where g.append and g.id is null;

  update lobsink_documents d
     set generation = g.generation, state = g.state, life = p_life, seq = g.seq, first_seq = g.first_seq,
         fragments = g.fragments, holes = g.holes, late = g.late, bytes = g.bytes, units = g.units, chunks = g.chunks,
         crc = g.crc, reason = g.reason, updated_at = t
    from unnest(ids, append, a_generation, a_state, a_seq, a_first, a_fragments, a_holes, a_late, a_bytes, a_units,
                a_chunks, a_crc, a_reason)
      as g(id, append, generation, state, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason)
   where g.append and d.id = g.id;

  insert into lobsink_chunks (document, generation, n, body)
  select d.id, d.generation, c.n, convert_from(c.body, 'UTF8')
    from unnest(chunk_group, chunk_n, chunk_body) as c(ord, n, body)
    join unnest(keys, append) with ordinality as g(doc_key, append, ord) on g.ord = c.ord
    join lobsink_documents d on d.doc_key = g.doc_key
   where g.append;
end
$$;
-- +goose StatementEnd

-- One flush: see the comments of lobwriter.Store. It is called in autocommit, so
-- that call and commit are one round trip. Each statement in it sees what was
-- committed before the fence row was locked, which is why the fence is not part
-- of a larger statement.
--
-- The first row that it returns is the fence row, ord 0, with fenced true if
-- nothing was done. The others are the answers in the order of the groups; the
-- stored row is there for all but appended ones.
--
-- one_by_one: a group that the database refuses is undone alone. The call
-- without it is faster, and fails as a whole.
-- +goose StatementBegin
create function lobsink_flush_v1(
  one_by_one boolean,
  p_partition int, p_life bigint, p_epoch bigint, p_claim_id text, p_flush bigint,
  p_checkpoint bigint, p_checkpoint_time bigint, p_highest bigint, p_highest_time bigint,
  keys text[], g_first bigint[], g_last bigint[], g_carries boolean[],
  b_generation bigint[], b_state smallint[], b_life bigint[], b_seq bigint[], b_bytes bigint[], b_crc bigint[],
  a_generation bigint[], a_state smallint[], a_first bigint[], a_fragments bigint[], a_holes bigint[],
  a_late bigint[], a_bytes bigint[], a_units bigint[], a_chunks bigint[], a_crc bigint[], a_reason text[],
  chunk_group int[], chunk_n bigint[], chunk_body bytea[]
) returns table (
  o_ord int, o_fenced boolean, o_life bigint, o_epoch bigint, o_claim_id text, o_flush bigint,
  o_checkpoint bigint, o_checkpoint_time bigint, o_highest bigint, o_highest_time bigint,
  o_status smallint, o_code text, o_text text,
  o_generation bigint, o_state smallint, o_mark_life bigint, o_seq bigint, o_first_seq bigint, o_fragments bigint, o_holes bigint,
  o_late bigint, o_bytes bigint, o_units bigint, o_chunks bigint, o_crc bigint, o_reason text
) language plpgsql volatile as $$
declare
  fence    lobsink_fences%rowtype;
  ids      bigint[];
  statuses smallint[];
  codes    text[] := array_fill(''::text, array[cardinality(keys)]);
  texts    text[] := array_fill(''::text, array[cardinality(keys)]);
  lo       int;
  hi       int := 0;
begin
  select * into fence from lobsink_fences f where f.partition = p_partition for update;
  if not found or fence.epoch = 0
     or (fence.life, fence.epoch, fence.claim_id, fence.flush) is distinct from (p_life, p_epoch, p_claim_id, p_flush) then
    return query select 0, true, coalesce(fence.life, (select b.life from lobsink_binding b)), coalesce(fence.epoch, 0), coalesce(fence.claim_id, ''),
      coalesce(fence.flush, 0), coalesce(fence.checkpoint, 0), coalesce(fence.checkpoint_time, 0),
      coalesce(fence.highest, 0), coalesce(fence.highest_time, 0),
      null::smallint, null::text, null::text, null::bigint, null::smallint, null::bigint, null::bigint, null::bigint, null::bigint,
      null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, null::text;
    return;
  end if;

  -- The answers, in the order of lobwriter.Status.
  select coalesce(array_agg(d.id order by g.ord), '{}'),
         coalesce(array_agg(case
           when (coalesce(d.life, 0), coalesce(d.seq, 0)) >= (p_life, g.last) then 1
           when (coalesce(d.generation, 0), coalesce(d.state, 0), coalesce(d.life, 0), coalesce(d.seq, 0), coalesce(d.bytes, 0),
                 coalesce(d.crc, 0)) is distinct from (g.generation, g.state, g.life, g.seq, g.bytes, g.crc)
             or (coalesce(d.life, 0), coalesce(d.seq, 0)) >= (p_life, g.first) then 2
           when d.state in (2, 4) and g.carries then 3
           else 4 end::smallint order by g.ord), '{}')
    into ids, statuses
    from unnest(keys, g_first, g_last, g_carries, b_generation, b_state, b_life, b_seq, b_bytes, b_crc)
           with ordinality as g(doc_key, first, last, carries, generation, state, life, seq, bytes, crc, ord)
    left join lobsink_documents d on d.doc_key = g.doc_key;

  if one_by_one then
    for i in 1 .. cardinality(keys) loop
      lo := hi + 1;
      while hi < cardinality(chunk_group) and chunk_group[hi + 1] = i loop
        hi := hi + 1;
      end loop;
      if statuses[i] = 4 then
        begin
          perform lobsink_append_v1(p_partition, p_life, keys[i:i], ids[i:i], array[true],
            a_generation[i:i], a_state[i:i], g_last[i:i], a_first[i:i], a_fragments[i:i], a_holes[i:i], a_late[i:i], a_bytes[i:i],
            a_units[i:i], a_chunks[i:i], a_crc[i:i], a_reason[i:i],
            array_fill(1, array[hi - lo + 1]), chunk_n[lo:hi], chunk_body[lo:hi]);
        exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
          statuses[i] := 5;
          codes[i] := sqlstate;
          texts[i] := sqlerrm;
        end;
      end if;
    end loop;
  else
    perform lobsink_append_v1(p_partition, p_life, keys, ids, array(select s = 4 from unnest(statuses) with ordinality as u(s, ord) order by ord),
      a_generation, a_state, g_last, a_first, a_fragments, a_holes, a_late, a_bytes, a_units, a_chunks, a_crc, a_reason,
      chunk_group, chunk_n, chunk_body);
  end if;

  if p_checkpoint > fence.checkpoint and not exists (select from unnest(statuses) s where s not in (1, 4)) then
    fence.checkpoint := p_checkpoint;
    fence.checkpoint_time := p_checkpoint_time;
  end if;
  if p_highest > fence.highest then
    fence.highest := p_highest;
    fence.highest_time := p_highest_time;
  end if;
  fence.flush := fence.flush + 1;
  update lobsink_fences f
     set flush = fence.flush, checkpoint = fence.checkpoint, checkpoint_time = fence.checkpoint_time,
         highest = fence.highest, highest_time = fence.highest_time
   where f.partition = p_partition;

  return query
    select 0, false, fence.life, fence.epoch, fence.claim_id, fence.flush, fence.checkpoint, fence.checkpoint_time,
      fence.highest, fence.highest_time,
      null::smallint, null::text, null::text, null::bigint, null::smallint, null::bigint, null::bigint, null::bigint, null::bigint,
      null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, null::bigint, null::text
    union all
    select s.ord::int, false, 0, 0, '', 0, 0, 0, 0, 0, s.status, s.code, s.text,
      d.generation, d.state, d.life, d.seq, d.first_seq, d.fragments, d.holes, d.late, d.bytes, d.units, d.chunks, d.crc, d.reason
      from unnest(statuses, ids, codes, texts) with ordinality as s(status, id, code, text, ord)
      left join lobsink_documents d on d.id = s.id and s.status <> 4
     order by 1;
end
$$;
-- +goose StatementEnd

-- +goose Down

drop function lobsink_flush_v1;
drop function lobsink_append_v1;
drop function lobsink_now;
drop view lobsink_texts;
drop table lobsink_chunks;
drop table lobsink_documents;
drop table lobsink_members;
drop table lobsink_leases;
drop table lobsink_fences;
drop table lobsink_binding;
