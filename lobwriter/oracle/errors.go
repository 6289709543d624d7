package oracle

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lobsink/lobsink/lobwriter"
)

// meaning is what an error of Oracle means for the caller.
type meaning struct {
	kind  lobwriter.Kind
	codes []int
	hint  string
	// isolate: it may be the fault of one document, if it comes again and again.
	isolate bool
}

const (
	hintSchema  = "the tables are not those of lobsink: run lobsink schema apply"
	hintGrants  = "grant what `lobsink schema grants` prints"
	hintConnect = "correct what follows the @ of --store, or start the listener and the service"
	hintLogin   = "correct user and password, unlock the account; lobsink tries again in five minutes at the earliest"
	hintSpace   = "give the tablespace or the quota room; lobsink goes on by itself"
	hintClient  = "install Oracle Instant Client 19 or newer (Basic or Basic Light) and put its folder into LD_LIBRARY_PATH, or run ldconfig with it"
)

// meanings are the errors that are known. What is not here is Transient, and
// isolated when it comes again and again. Numbers and texts are those of the
// Database Error Messages.
var meanings = []meaning{
	{kind: lobwriter.Credentials, hint: hintLogin, codes: []int{
		1005,  // null password given
		1017,  // invalid username/password
		1040,  // invalid character in password
		1045,  // user lacks CREATE SESSION privilege
		28000, // the account is locked
		28001, // the password has expired
		28003, // password verification failed
	}},
	{kind: lobwriter.Space, hint: hintSpace, codes: []int{
		257,                                            // archiver error
		1536,                                           // space quota exceeded
		1652, 1653, 1654, 1658, 1659, 1688, 1691, 1692, // unable to extend or create
		1693,         // max # extents reached in lob segment
		1950,         // no privileges on tablespace: no quota
		12954,        // size of Oracle Free
		19809, 19815, // recovery files limit
		30032, 30036, // undo
		65114, // space usage in container is too high
	}},
	{kind: lobwriter.Transient, codes: []int{ // the connection is gone
		28, 31, 45, 603, 1012, 1041, 2396, 2399, 3106, 3113, 3114, 3135,
		12152, 12153, 12161, 12537, 12547, 12570, 12571, 12583,
	}},
	{kind: lobwriter.Transient, hint: "the instance starts or stops", codes: []int{1033, 1034, 1089, 1090, 1092, 1109, 27101}},
	{kind: lobwriter.Transient, hint: hintConnect, codes: []int{ // listener
		12170, 12514, 12516, 12518, 12519, 12520, 12521, 12526, 12527, 12528, 12535, 12541, 12543, 12545, 12560,
	}},
	{kind: lobwriter.Transient, hint: "raise SESSIONS, PROCESSES or SESSIONS_PER_USER, or lower partitions", codes: []int{18, 20, 2391}},
	{kind: lobwriter.Transient, codes: []int{24418, 24459, 24496}},                                       // session pool
	{kind: lobwriter.Transient, codes: []int{25401, 25402, 25403, 25404, 25405, 25408, 25409}},           // failover under a call
	{kind: lobwriter.Transient, codes: []int{1013, 3136, 3156}},                                          // cancelled, or too late
	{kind: lobwriter.Transient, codes: []int{54, 60, 1555, 2049, 4020, 4021, 8177, 30006, 63300, 63302}}, // others were in the way
	{kind: lobwriter.Transient, codes: []int{4061, 4065, 4068, 6508}},                                    // the package was compiled
	{kind: lobwriter.Transient, hint: "the memory of the database is short", codes: []int{4030, 4031, 4036}},
	{kind: lobwriter.Transient, hint: "the Resource Manager has ended the call", codes: []int{40, 56720}},
	{kind: lobwriter.Transient, codes: []int{1000}}, // maximum open cursors exceeded
	{kind: lobwriter.Transient, hint: "the database takes no writes: it is a standby, or read-only", codes: []int{16000, 16456}},
	{kind: lobwriter.Transient, hint: "a block is damaged, or the database has a bug: look into its alert log", isolate: true,
		codes: []int{600, 1578, 7445, 8103, 22922, 26040}},
	{kind: lobwriter.Fatal, hint: hintSchema, codes: []int{
		904, 942, 4042, 4043, 4063, 6550, // the package is not there, is another one, or does not compile
		14400, // no list partition for a partition of lobsink
	}},
	{kind: lobwriter.Fatal, hint: hintGrants, codes: []int{1031}},
	{kind: lobwriter.Fatal, hint: hintConnect, codes: []int{
		12154, 12505, 12506, // the name cannot be resolved, is not known, is refused
		28040, // no matching authentication protocol
	}},
	{kind: lobwriter.Fatal, hint: "this is a bug of lobsink", codes: []int{900, 1008, 1036, 22275, 22920, 20810, 20812}},
	{kind: lobwriter.Invalid, codes: []int{ // content
		1400, 1438, 1461, 2290, 2291, 6502, 12899, 21560, 22835, 29275, 20813, 20814, 20815, 20816, 20817,
	}},
}

// byCode finds the meaning of a code.
func byCode(code int) meaning {
	for _, m := range meanings {
		if slices.Contains(m.codes, code) {
			return m
		}
	}
	return meaning{isolate: true}
}

// byText are errors that have no code of Oracle's, by what their text contains.
// They are of ODPI-C, the C library of the driver.
var byText = []struct {
	text string
	code string
	meaning
}{
	{"DPI-1047", "DPI-1047", meaning{kind: lobwriter.Fatal, hint: hintClient}},
	{"DPI-1050", "DPI-1050", meaning{kind: lobwriter.Fatal, hint: hintClient}}, // the client library is too old
	{"DPI-1072", "DPI-1072", meaning{kind: lobwriter.Fatal, hint: hintClient}}, // its version is not supported
	{"DPI-1067", "DPI-1067", meaning{kind: lobwriter.Transient}},               // call timeout
	{"DPI-1080", "DPI-1080", meaning{kind: lobwriter.Transient}},               // the connection was closed
	{"DPI-1010", "DPI-1010", meaning{kind: lobwriter.Transient}},               // not connected
	{"DPI-1002", "DPI-1002", meaning{kind: lobwriter.Transient}},               // invalid handle
}

// oracleError is an error of the driver that has a code.
type oracleError interface {
	error
	Code() int
	Message() string
}

var oraCode = regexp.MustCompile(`\bORA-(\d{5})\b`)

// codeOf returns the number of an ORA error; 0: there is none. By the driver's
// code first; where that is 0, the text may name one.
func codeOf(err error) int {
	var o oracleError
	if !errors.As(err, &o) {
		return 0
	}
	if o.Code() != 0 {
		return o.Code()
	}
	for _, m := range oraCode.FindAllStringSubmatch(o.Error(), -1) {
		if n, _ := strconv.Atoi(m[1]); n != 0 {
			return n
		}
	}
	return 0
}

// classify gives an error its kind. What has one already stays as it is.
func classify(op string, err error) error {
	var fenced *lobwriter.FencedError
	var known *lobwriter.Error
	switch {
	case err == nil, errors.Is(err, lobwriter.ErrNotFound), errors.As(err, &fenced):
		return err
	case errors.As(err, &known):
		return known
	}
	if code := codeOf(err); code != 0 {
		m := byCode(code)
		return &lobwriter.Error{Kind: m.kind, Op: op, Code: codeText(code), Hint: m.hint, Err: shortened(err)}
	}
	for _, t := range byText {
		if strings.Contains(err.Error(), t.text) {
			return &lobwriter.Error{Kind: t.kind, Op: op, Code: t.code, Hint: t.hint, Err: shortened(err)}
		}
	}
	if errors.Is(err, driver.ErrBadConn) {
		err = fmt.Errorf("the connection is gone: %w", err)
	}
	return &lobwriter.Error{Op: op, Err: err}
}

// codeText is a code as Oracle writes it.
func codeText(code int) string { return fmt.Sprintf("ORA-%05d", code) }

// shortError is an error of the driver without what the driver says around it:
// its parameters, on many lines.
type shortError struct {
	text  string
	cause error
}

func (e *shortError) Error() string { return e.text }

func (e *shortError) Unwrap() error { return e.cause }

// shortened makes one line of an error of the driver.
func shortened(err error) error {
	text := err.Error()
	var o oracleError
	if errors.As(err, &o) {
		text = o.Message()
		if o.Code() != 0 && !strings.HasPrefix(text, "ORA-") {
			text = codeText(o.Code()) + ": " + text
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	return &shortError{text, err}
}
