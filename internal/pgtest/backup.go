package pgtest

import (
	"path/filepath"
	"strconv"
	"testing"
)

// Replication lets BaseBackup connect.
func Replication() Option { return HBA("host replication postgres 127.0.0.1/32 trust") }

// BaseBackup takes a base backup of the running server, which needs the option
// Replication, and returns its folder, for RestoreFrom.
func (s *Server) BaseBackup(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(s.home, "backup")
	c := s.command("pg_basebackup", "--host=127.0.0.1", "--port="+strconv.Itoa(s.port), "--username=postgres",
		"--pgdata="+dir, "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	return dir
}
