package standin

import (
	"slices"
	"strconv"
	"strings"
)

// commitOnSuccess is the mode of an execution that ends its transaction.
const commitOnSuccess = 0x20

// Types of binds, as the driver names them.
const (
	typeText   = 1
	typeNumber = 6
	typeRAW    = 23
)

// bind is a bound variable.
type bind struct {
	name   string
	of     int
	most   int // room of a table; 0: no table
	values []*string
	out    []*string
	set    bool // it is an OUT parameter that was given a value
}

// Call is one execution of a statement.
type Call struct {
	mode              int
	module, action    string
	info, sql         string
	prefix, procedure string
	binds             []*bind
	columns           []string // of a query
	rows              [][]string
	fault             error // the first bind that is not what the procedure takes
}

func readCall(f *frame) *Call {
	c := &Call{mode: f.number()}
	_ = f.number() // iterations: 1
	c.module, c.action, c.info, c.sql = f.text(), f.text(), f.text(), f.text()
	if m := packageCall.FindStringSubmatch(c.sql); m != nil {
		c.prefix, c.procedure = strings.ToLower(m[1]), strings.ToLower(m[2])
	}
	for n := f.number(); n > 0; n-- {
		b := &bind{name: strings.ToLower(f.text()), of: f.number(), most: f.number()}
		for k := f.number(); k > 0; k-- {
			b.values = append(b.values, f.value())
		}
		c.binds = append(c.binds, b)
	}
	return c
}

// write writes the values of OUT parameters, and the rows of a query.
func (c *Call) write(o *reply) {
	o.long(uint64(len(c.rows)))
	n := 0
	for _, b := range c.binds {
		if b.set {
			n++
		}
	}
	o.number(n)
	for i, b := range c.binds {
		if b.set {
			o.number(i + 1)
			o.number(len(b.out))
			for _, v := range b.out {
				o.value(v)
			}
		}
	}
	o.number(len(c.columns))
	for _, name := range c.columns {
		o.text(name)
		o.short(typeText)
		o.short(4000)
		o.short(0)
	}
	o.number(len(c.rows))
	for _, row := range c.rows {
		for _, v := range row {
			o.value(&v)
		}
	}
}

// null makes NULL of the first element of an OUT parameter.
func (c *Call) null(name string) {
	if b := c.find(name); b != nil && len(b.out) > 0 {
		b.out[0] = nil
	}
}

func (c *Call) find(name string) *bind {
	i := slices.IndexFunc(c.binds, func(b *bind) bool { return b.name == name })
	if i < 0 {
		return nil
	}
	return c.binds[i]
}

// bound returns the bind of a parameter, which must have a type and be a table or
// not.
func (c *Call) bound(name string, of int, table bool) *bind {
	b := c.find(name)
	if b == nil || b.of != of || table != (b.most > 0) {
		if c.fault == nil {
			c.fault = failure(6550, "line 1, column 7: PLS-00306: wrong number or types of arguments: %s", strings.ToUpper(name))
		}
		return &bind{}
	}
	return b
}

func (c *Call) fail(err error) {
	if c.fault == nil {
		c.fault = err
	}
}

func toNumber(v *string) int64 {
	if v == nil {
		return 0
	}
	n, _ := strconv.ParseInt(*v, 10, 64) // the client library writes nothing else
	return n
}

func toText(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

func first(values []*string) *string {
	if len(values) == 0 {
		return nil
	}
	return values[0]
}

// IN parameters.

func (c *Call) number(name string) int64 {
	return toNumber(first(c.bound(name, typeNumber, false).values))
}
func (c *Call) text(name string) string { return toText(first(c.bound(name, typeText, false).values)) }

func (c *Call) numbers(name string) []int64 {
	return convert(c.bound(name, typeNumber, true).values, toNumber)
}

func (c *Call) texts(name string) []string {
	return convert(c.bound(name, typeText, true).values, toText)
}

func (c *Call) raws(name string) [][]byte {
	return convert(c.bound(name, typeRAW, true).values, func(v *string) []byte { return []byte(toText(v)) })
}

func convert[T any](values []*string, to func(*string) T) []T {
	out := make([]T, len(values))
	for i, v := range values {
		out[i] = to(v)
	}
	return out
}

// OUT parameters. Empty text is NULL, as always in Oracle.

func (c *Call) setNumber(name string, v int64) {
	b := c.bound(name, typeNumber, false)
	b.out, b.set = []*string{decimal(v)}, true
}

func (c *Call) setText(name, v string) {
	b := c.bound(name, typeText, false)
	b.out, b.set = []*string{nullable(v)}, true
}

func (c *Call) setNumbers(name string, values []int64) {
	setTable(c, c.bound(name, typeNumber, true), values, decimal)
}

func (c *Call) setRaws(name string, values [][]byte) {
	setTable(c, c.bound(name, typeRAW, true), values, func(v []byte) *string { return nullable(string(v)) })
}

func setTable[T any](c *Call, b *bind, values []T, to func(T) *string) {
	if len(values) > b.most {
		c.fail(failure(6513, "PL/SQL: index for PL/SQL table out of range for host language array"))
	}
	b.out, b.set = make([]*string, len(values)), true
	for i, v := range values {
		b.out[i] = to(v)
	}
}

func decimal(v int64) *string {
	s := strconv.FormatInt(v, 10)
	return &s
}

func nullable(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}
