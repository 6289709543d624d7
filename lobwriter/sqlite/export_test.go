package sqlite

import "database/sql"

// URI is the name of a file for the driver.
var URI = uri

// Writer returns the connection that writes.
func (s *Store) Writer() *sql.DB { return s.file.writer }
