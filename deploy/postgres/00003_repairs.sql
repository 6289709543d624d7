-- New generations of documents, and what operators decided about single
-- fragments. `lobsink setup` applies this file.
--
-- The commands that change stored documents (replay, dlq requeue, doc purge,
-- checkpoint) need, beside what lobsink run needs:
--
--   grant select, insert, delete on lobsink_repairs to ...;
--   grant select, insert, update, delete on lobsink_purged to ...;
--   grant delete on lobsink_documents, lobsink_chunks, lobsink_fences to ...;

-- +goose Up

-- The fragment (life, seq) is left out of the document, or body has taken its
-- place, in this and in every later generation.
create table lobsink_repairs (
  document bigint not null,
  life     bigint not null,
  seq      bigint not null,
  body     text, -- NULL: it is left out
  primary key (document, life, seq)
);

-- The checkpoint at which documents of a partition were purged: what lies before it
-- must not be read again.
create table lobsink_purged (
  partition int    not null primary key,
  life      bigint not null,
  seq       bigint not null
);

-- Puts a generation, whose chunks are in lobsink_chunks already, in the place of
-- the stored one: see lobwriter.Build. The caller's transaction wrote the chunks,
-- so that nobody sees them yet; it has been waiting for nothing until now, and
-- commits at once. in_document is the document's ID, a new one where there is
-- none.
--
-- The reply is the stored row as it was before; all 0: there was none.
-- +goose StatementBegin
create function lobsink_swap_v1(
  in_partition   int,
  in_doc_key     text,
  in_document    bigint,
  in_generation  bigint,
  in_state       smallint,
  in_life        bigint,
  in_seq         bigint,
  in_first_seq   bigint,
  in_fragments   bigint,
  in_holes       bigint,
  in_late        bigint,
  in_bytes       bigint,
  in_units       bigint,
  in_chunks      bigint,
  in_crc         bigint,
  in_reason      text,
  -- The repairs, an array for each column.
  in_repair_life bigint[],
  in_repair_seq  bigint[],
  in_repair_body text[],
  out swapped    boolean,
  out generation bigint, out state smallint, out life bigint, out seq bigint, out first_seq bigint,
  out fragments  bigint, out holes bigint, out late bigint,
  out bytes      bigint, out units bigint, out chunks bigint, out crc bigint, out reason text
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  fence   lobsink_fences;
  stored  lobsink_documents;
  at_time bigint;
begin
  swapped := false;
  -- A statement of its own: what follows sees all that was committed before the
  -- lock was given.
  select f.* into fence from lobsink_fences f where f.partition = in_partition for update;
  if not found then
    select in_partition, b.life, 0, '', 0, 0, 0, 0, 0 into fence from lobsink_binding b;
  end if;
  select d.* into stored from lobsink_documents d where d.doc_key = in_doc_key;
  generation := coalesce(stored.generation, 0);
  state      := coalesce(stored.state, 0);
  life       := coalesce(stored.life, 0);
  seq        := coalesce(stored.seq, 0);
  first_seq  := coalesce(stored.first_seq, 0);
  fragments  := coalesce(stored.fragments, 0);
  holes      := coalesce(stored.holes, 0);
  late       := coalesce(stored.late, 0);
  bytes      := coalesce(stored.bytes, 0);
  units      := coalesce(stored.units, 0);
  chunks     := coalesce(stored.chunks, 0);
  crc        := coalesce(stored.crc, 0);
  reason     := coalesce(stored.reason, '');
  if generation + 1 <> in_generation then
    return;
  elsif stored.id is null then
    if in_life <> fence.life or in_seq > fence.checkpoint then
      return;
    end if;
  elsif stored.id <> in_document or (life, seq) <> (in_life, in_seq) then
    return;
  end if;

  at_time := lobsink_now();
  if stored.id is null then
    insert into lobsink_documents
          (id, doc_key, partition, generation, state, life, seq, first_seq, fragments, holes, late,
           bytes, units, chunks, crc, reason, created_at, updated_at)
    values (in_document, in_doc_key, in_partition, in_generation, in_state, in_life, in_seq, in_first_seq, in_fragments, in_holes, in_late,
            in_bytes, in_units, in_chunks, in_crc, in_reason, at_time, at_time);
  else
    update lobsink_documents d
       set generation = in_generation, state = in_state, first_seq = in_first_seq,
           fragments = in_fragments, holes = in_holes, late = in_late,
           bytes = in_bytes, units = in_units, chunks = in_chunks, crc = in_crc, reason = in_reason, updated_at = at_time
     where d.id = in_document;
    delete from lobsink_chunks c where c.document = in_document and c.generation <> in_generation;
    delete from lobsink_repairs r where r.document = in_document;
  end if;
  insert into lobsink_repairs (document, life, seq, body)
  select in_document, r.* from unnest(in_repair_life, in_repair_seq, in_repair_body) r;
  swapped := true;
end
$$;
-- +goose StatementEnd

-- Deletes documents that nobody changes any more: see lobwriter.Purger.
-- +goose StatementBegin
create function lobsink_purge_v1(
  in_partition int, in_doc_key text[], in_state smallint, in_older bigint, in_dry_run boolean,
  out documents bigint, out bytes bigint, out above bigint
)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  fence lobsink_fences;
  ids   bigint[];
begin
  select f.* into fence from lobsink_fences f where f.partition = in_partition for update;
  select coalesce(array_agg(d.id) filter (where (d.life, d.seq) <= (fence.life, fence.checkpoint)), '{}'),
         coalesce(sum(d.bytes) filter (where (d.life, d.seq) <= (fence.life, fence.checkpoint)), 0),
         count(*) filter (where (d.life, d.seq) > (fence.life, fence.checkpoint))
    into ids, bytes, above
    from lobsink_documents d
   where d.doc_key = any (in_doc_key) and d.partition = in_partition and d.state = in_state
     and d.updated_at <= lobsink_now() - in_older;
  documents := cardinality(ids);
  if in_dry_run then
    return;
  end if;
  if exists (select 1 from lobsink_documents d where d.id = any (ids) and not exists (
       select 1 from lobsink_purged p where p.partition = in_partition and (p.life, p.seq) >= (d.life, d.seq))) then
    insert into lobsink_purged (partition, life, seq) values (in_partition, fence.life, fence.checkpoint)
    on conflict (partition) do update set life = excluded.life, seq = excluded.seq;
    update lobsink_fences f set flush = f.flush + 2 where f.partition = in_partition;
  end if;
  delete from lobsink_chunks where document = any (ids);
  delete from lobsink_repairs where document = any (ids);
  delete from lobsink_documents where id = any (ids);
end
$$;
-- +goose StatementEnd

-- +goose Down

drop function lobsink_purge_v1;
drop function lobsink_swap_v1;
drop table lobsink_purged;
drop table lobsink_repairs;
