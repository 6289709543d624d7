-- What operators decided about single fragments of documents.

-- +goose Up

-- The fragment (life, seq) is left out of the document, or body has taken its
-- place, in this and in every later generation.
create table lobsink_repairs (
  document integer not null references lobsink_documents (id),
  life     integer not null,
  seq      integer not null,
  body     text, -- NULL: it is left out
  primary key (document, life, seq)
) strict;

-- The checkpoint at which documents of a partition were purged: what lies before it
-- must not be read again.
create table lobsink_purged (
  partition integer not null primary key,
  life      integer not null,
  seq       integer not null
) strict;

-- +goose Down

drop table lobsink_purged;
drop table lobsink_repairs;
