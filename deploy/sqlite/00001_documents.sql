-- The tables of lobsink in SQLite. `lobsink setup` applies this file.
--
-- Times are Unix nanoseconds. Sequences are those of the stream.

-- +goose Up

-- Which stream the tables serve. There is one row; its stream is NULL until
-- lobsink runs for the first time.
create table lobsink_binding (
  id          integer not null primary key check (id = 1),
  database_id text    not null,
  life        integer not null default 0,
  stream      text,
  created     integer,
  partitions  integer
) strict;

insert into lobsink_binding (id, database_id) values (1, lower(hex(randomblob(4))));

-- The fence row of each partition that was ever claimed. A flush compares life,
-- epoch, claim_id and flush in the transaction that writes.
create table lobsink_fences (
  partition       integer not null primary key,
  life            integer not null,
  epoch           integer not null,
  claim_id        text    not null,
  flush           integer not null,
  checkpoint      integer not null,
  checkpoint_time integer not null,
  highest         integer not null,
  highest_time    integer not null
) strict;

-- Until when nobody else may claim a partition, and by which claim.
create table lobsink_leases (
  partition   integer not null primary key,
  member_id   text    not null,
  epoch       integer not null,
  claim_id    text    not null,
  lease_until integer not null
) strict;

-- The running lobsinks.
create table lobsink_members (
  id         text    not null primary key,
  name       text    not null,
  version    text    not null,
  seen_until integer not null
) strict;

-- One row for each document. state: 1 open, 2 complete, 3 incomplete,
-- 4 quarantined. life and seq are the last message that is stored; units is the
-- length in characters; crc is the CRC-32C of the text.
create table lobsink_documents (
  id         integer not null primary key,
  doc_key    text    not null unique,
  partition  integer not null,
  generation integer not null,
  state      integer not null,
  life       integer not null,
  seq        integer not null,
  first_seq  integer not null,
  fragments  integer not null,
  holes      integer not null,
  late       integer not null,
  bytes      integer not null,
  units      integer not null,
  chunks     integer not null,
  crc        integer not null,
  reason     text    not null,
  created_at integer not null,
  updated_at integer not null
) strict;

-- The text of a document in one of its generations, in the order of n, from 1.
-- A table with a rowid: without one, bodies of this size are much slower.
create table lobsink_chunks (
  document   integer not null references lobsink_documents (id),
  generation integer not null,
  n          integer not null,
  body       text    not null,
  primary key (document, generation, n)
) strict;

-- Whole documents, for any client with SQLite 3.44 or newer. A text of more than
-- 1,000,000,000 bytes does not fit into a value: read its chunks.
create view lobsink_texts as
select d.doc_key,
       case d.state when 1 then 'open' when 2 then 'complete' when 3 then 'incomplete' when 4 then 'quarantined' end as state,
       d.bytes,
       coalesce((select group_concat(c.body, '' order by c.n)
                   from lobsink_chunks c
                  where c.document = d.id and c.generation = d.generation), '') as text
  from lobsink_documents d;

-- +goose Down

drop view lobsink_texts;
drop table lobsink_chunks;
drop table lobsink_documents;
drop table lobsink_members;
drop table lobsink_leases;
drop table lobsink_fences;
drop table lobsink_binding;
