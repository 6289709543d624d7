-- What version 1 of the tables holds after a while: a document in three chunks, an
-- open one, an empty one, one with a hole, and one with an older generation.
update lobsink_binding set database_id = '0badcafe', life = 1, stream = 'FRAGMENTS', created = 1700000000000000000, partitions = 4;
insert into lobsink_fences values (1, 1, 5, '00000000000000cc', 7, 12, 1700000012000000000, 14, 1700000014000000000);
insert into lobsink_leases values (1, '00000000000000aa', 5, '00000000000000cc', 1700000100000000000);
insert into lobsink_members values ('00000000000000aa', 'host', 'v0.1.0', 1700000100000000000);
insert into lobsink_documents values
  (1, 'whole',      1, 1, 2, 1, 3,  1,  3, 0, 0, 16, 10, 3, 2201897970, '', 1700000001000000000, 1700000003000000000),
  (2, 'open',       1, 1, 1, 1, 5,  4,  2, 0, 0,  4,  4, 1, 2085178046, '', 1700000004000000000, 1700000005000000000),
  (3, 'empty',      1, 1, 1, 1, 6,  6,  1, 0, 0,  0,  0, 0, 0,          '', 1700000006000000000, 1700000006000000000),
  (4, 'holed',      1, 1, 3, 1, 12, 7,  3, 1, 0,  4,  4, 1, 2085178046, 'nul: byte 3 (sequence 8)', 1700000007000000000, 1700000012000000000),
  (5, 'rebuilt é',  1, 2, 1, 1, 9,  9,  1, 0, 0,  4,  4, 1, 2085178046, '', 1700000009000000000, 1700000009000000000);
insert into lobsink_chunks values
  (1, 1, 2, 'é€'), (1, 1, 1, '<a>'), (1, 1, 3, '😊</a>'),
  (2, 1, 1, '<a/>'), (4, 1, 1, '<a/>'),
  (5, 1, 1, 'of the first generation'), (5, 2, 1, '<a/>');
