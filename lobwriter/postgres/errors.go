package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lobsink/lobsink/lobwriter"
)

// meaning is what a SQLSTATE means for the caller.
type meaning struct {
	kind lobwriter.Kind
	hint string
}

const (
	hintSchema = "the tables are not those of this lobsink: run `lobsink setup --store postgres://...`"
	hintGrants = "grant the user what `lobsink setup` made: select, insert, update, delete on the tables, execute on the functions"
	hintServer = "start the server, or correct --store"
	hintLogin  = "correct user and password, or the server's pg_hba.conf"
)

// states are the SQLSTATEs with a meaning of their own; classes hold for the
// others that begin with the same two characters. What is in neither is
// Transient. https://www.postgresql.org/docs/current/errcodes-appendix.html
var states = map[string]meaning{
	pgerrcode.InvalidCatalogName:           {lobwriter.Fatal, "the database does not exist: create it, or correct --store"},
	pgerrcode.InvalidSchemaName:            {lobwriter.Fatal, hintSchema},
	pgerrcode.UndefinedTable:               {lobwriter.Fatal, hintSchema},
	pgerrcode.UndefinedFunction:            {lobwriter.Fatal, hintSchema},
	pgerrcode.UndefinedColumn:              {lobwriter.Fatal, hintSchema},
	pgerrcode.InsufficientPrivilege:        {lobwriter.Fatal, hintGrants},
	pgerrcode.DiskFull:                     {lobwriter.Space, "make room on the disk of the database"},
	pgerrcode.ReadOnlySQLTransaction:       {lobwriter.Transient, "the server is a standby, or read-only"},
	pgerrcode.ObjectNotInPrerequisiteState: {lobwriter.Transient, ""},
	pgerrcode.QueryCanceled:                {lobwriter.Transient, ""},
}

var classes = map[string]meaning{
	"22": {lobwriter.Invalid, ""},                                    // data exception
	"23": {lobwriter.Invalid, "another program wrote to the tables"}, // integrity constraint violation
	"28": {lobwriter.Credentials, hintLogin},
	"54": {lobwriter.Invalid, ""}, // program limit exceeded
}

// classify gives an error its kind. What has one already stays as it is.
func classify(op string, err error) error {
	var fenced *lobwriter.FencedError
	var known *lobwriter.Error
	if err == nil || errors.Is(err, lobwriter.ErrNotFound) || errors.As(err, &fenced) || errors.As(err, &known) {
		return err
	}
	e := &lobwriter.Error{Op: op, Err: err}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		e.Err, e.Hint = &connectError{connect}, hintServer
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		e.Code = pg.Code
		m, ok := states[pg.Code]
		if !ok && len(pg.Code) == 5 {
			m = classes[pg.Code[:2]]
		}
		e.Kind, e.Hint = m.kind, m.hint
	} else if strings.Contains(err.Error(), "no password supplied") || strings.Contains(err.Error(), "password file") {
		e.Kind, e.Hint = lobwriter.Credentials, hintLogin
	}
	return e
}
