package oracle

// The calls: one anonymous block for each procedure of package lobsink_v1, see
// deploy/oracle/00002_lobsink_v1.sql. The binds have the names of the parameters;
// a test compares them with the specification, in name, order and type.

const environmentBlock = `BEGIN lobsink_v1.environment(:p_schema_version, :p_role, :p_character_set,
  :p_database, :p_container, :p_instance, :p_service); END;`

const bindBlock = `BEGIN lobsink_v1.bind(:p_stream, :p_created, :p_partitions,
  :p_database_id, :p_life, :p_stored_stream, :p_stored_created, :p_stored_partitions); END;`

const bindingBlock = `BEGIN lobsink_v1.binding(
  :p_database_id, :p_life, :p_stored_stream, :p_stored_created, :p_stored_partitions); END;`

const attendBlock = `BEGIN lobsink_v1.attend(:p_id, :p_name, :p_version, :p_lease,
  :p_id_bytes, :p_name_bytes, :p_version_bytes, :p_left, :p_texts, :p_more,
  :p_lease_partition, :p_lease_id_bytes, :p_lease_left, :p_lease_texts); END;`

const rosterBlock = `BEGIN lobsink_v1.roster(:p_after,
  :p_id_bytes, :p_name_bytes, :p_version_bytes, :p_left, :p_texts, :p_more,
  :p_lease_partition, :p_lease_id_bytes, :p_lease_left, :p_lease_texts); END;`

const leaveBlock = `BEGIN lobsink_v1.leave(:p_id); END;`

const claimBlock = `BEGIN lobsink_v1.claim(:p_partition, :p_member_id, :p_claim_id, :p_lease,
  :p_outcome, :p_holder, :p_held_for,
  :p_stored_life, :p_stored_epoch, :p_stored_claim_id, :p_stored_flush,
  :p_stored_checkpoint, :p_stored_checkpoint_time, :p_stored_highest, :p_stored_highest_time); END;`

const renewBlock = `BEGIN lobsink_v1.renew(:p_partition, :p_member_id, :p_epoch, :p_claim_id, :p_lease,
  :p_outcome,
  :p_stored_life, :p_stored_epoch, :p_stored_claim_id, :p_stored_flush,
  :p_stored_checkpoint, :p_stored_checkpoint_time, :p_stored_highest, :p_stored_highest_time); END;`

const releaseBlock = `BEGIN lobsink_v1.release_claim(:p_partition, :p_member_id, :p_epoch, :p_claim_id,
  :p_outcome); END;`

const fenceBlock = `BEGIN lobsink_v1.fence(:p_partition,
  :p_stored_life, :p_stored_epoch, :p_stored_claim_id, :p_stored_flush,
  :p_stored_checkpoint, :p_stored_checkpoint_time, :p_stored_highest, :p_stored_highest_time); END;`

const flushBlock = `BEGIN lobsink_v1.flush(:p_partition, :p_life, :p_epoch, :p_claim_id, :p_flush,
  :p_checkpoint, :p_checkpoint_time, :p_highest, :p_highest_time, :p_isolate,
  :p_key, :p_first, :p_last,
  :p_was_generation, :p_was_state, :p_was_life, :p_was_seq, :p_was_bytes, :p_was_crc,
  :p_generation, :p_state, :p_first_seq, :p_fragments, :p_holes, :p_late,
  :p_bytes, :p_units, :p_chunks, :p_crc, :p_reason, :p_pieces, :p_data,
  :p_outcome,
  :p_stored_life, :p_stored_epoch, :p_stored_claim_id, :p_stored_flush,
  :p_stored_checkpoint, :p_stored_checkpoint_time, :p_stored_highest, :p_stored_highest_time,
  :p_lob_writes, :p_status, :p_code,
  :p_row_generation, :p_row_state, :p_row_life, :p_row_seq, :p_row_first_seq, :p_row_fragments, :p_row_holes, :p_row_late,
  :p_row_bytes, :p_row_units, :p_row_chunks, :p_row_crc, :p_row_reason_bytes, :p_error_bytes, :p_texts); END;`

const rowsBlock = `BEGIN lobsink_v1.stored_rows(:p_partition, :p_key,
  :p_row_generation, :p_row_state, :p_row_life, :p_row_seq, :p_row_first_seq, :p_row_fragments, :p_row_holes, :p_row_late,
  :p_row_bytes, :p_row_units, :p_row_chunks, :p_row_crc, :p_row_reason_bytes, :p_texts); END;`

const documentsBlock = `BEGIN lobsink_v1.documents(:p_from, :p_to, :p_after, :p_state, :p_limit,
  :p_row_partition,
  :p_row_generation, :p_row_state, :p_row_life, :p_row_seq, :p_row_first_seq, :p_row_fragments, :p_row_holes, :p_row_late,
  :p_row_bytes, :p_row_units, :p_row_chunks, :p_row_crc, :p_row_created_at, :p_row_updated_at,
  :p_row_key_bytes, :p_row_reason_bytes, :p_texts, :p_more); END;`

const readBlock = `BEGIN lobsink_v1.read_body(:p_key, :p_generation, :p_from, :p_to, :p_data, :p_next); END;`

const beginBuildBlock = `BEGIN lobsink_v1.begin_build(:p_partition, :p_key, :p_generation); END;`

const appendBuildBlock = `BEGIN lobsink_v1.append_build(:p_partition, :p_key, :p_generation, :p_data); END;`

const swapBuildBlock = `BEGIN lobsink_v1.swap_build(:p_partition, :p_key,
  :p_generation, :p_state, :p_life, :p_seq, :p_first_seq, :p_fragments, :p_holes, :p_late,
  :p_bytes, :p_units, :p_chunks, :p_crc, :p_reason,
  :p_repair_life, :p_repair_seq, :p_repair_omit, :p_repair_pieces, :p_repair_data,
  :p_outcome,
  :p_row_generation, :p_row_state, :p_row_life, :p_row_seq, :p_row_first_seq, :p_row_fragments, :p_row_holes, :p_row_late,
  :p_row_bytes, :p_row_units, :p_row_chunks, :p_row_crc, :p_row_reason); END;`

const repairsBlock = `BEGIN lobsink_v1.repairs(:p_key, :p_after_life, :p_after_seq,
  :p_life, :p_seq, :p_omit, :p_bytes, :p_more); END;`

const readRepairBlock = `BEGIN lobsink_v1.read_repair(:p_key, :p_life, :p_seq, :p_from, :p_data, :p_next); END;`

const purgeBlock = `BEGIN lobsink_v1.purge(:p_partition, :p_key, :p_state, :p_older, :p_dry_run,
  :p_documents, :p_bytes, :p_above); END;`
