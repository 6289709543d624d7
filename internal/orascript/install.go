package orascript

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// Prefix is what the names of all objects begin with in the files.
const Prefix = "lobsink_"

var prefixes = regexp.MustCompile(`^[a-z][a-z0-9_]{0,30}_$`)

// MaxPartitions is the most partitions that layouts are rendered for: each has a
// segment of its own.
const MaxPartitions = 1024

// Options say what a database shall get.
type Options struct {
	// Prefix is what the names of all objects begin with; "": Prefix.
	Prefix string
	// Owner is the schema of the tables; "": that of the session.
	Owner Name
	// Partitions is the number of the stream's partitions, for choices that make
	// something for each; from 1.
	Partitions int
	// Choices are names of storage choices, see Choices.
	Choices []string
	// Attach puts the text of documents into another table; nil: it does not.
	Attach *Attachment
}

// Choice is a storage choice: a script that is not run unless it is asked for.
type Choice struct {
	// Name is how it is asked for, such as in-row.
	Name string
	// Summary says what it does.
	Summary string
	// Licence is the option of Oracle that has to be licensed for it, or none.
	Licence string
	// Runs says when: before the tables, after the tables, or last.
	Runs string
	// Excludes are choices that it cannot go with.
	Excludes []string

	file string
}

// bodyTables is the choice that is a layout: its script is part of a migration.
const bodyTables = "body-tables"

// When the script of a choice runs.
const (
	runsBefore = "before the tables"
	runsAfter  = "after the tables"
	runsLast   = "last"
)

var headers = regexp.MustCompile(`(?m)^-- (Licence|Runs|Excludes): (.*)$`)

// Choices returns all storage choices that there are, by name.
func Choices(files fs.FS) ([]Choice, error) {
	all := []Choice{{
		Name: bodyTables, Licence: "none", file: "layouts/tables.sql.tmpl",
		Summary:  "the text of documents in one table for each partition of the stream, under a view: the effect of partitioning without its licence",
		Excludes: []string{"partitioning", "in-row", "retention-none", "retention-min", "compress"},
	}}
	names, err := fs.Glob(files, "options/*.sql*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		base, _, _ := strings.Cut(path.Base(name), ".")
		c := Choice{Name: strings.ReplaceAll(base, "_", "-"), file: name, Summary: summary(string(text))}
		for _, m := range headers.FindAllStringSubmatch(string(text), -1) {
			switch m[1] {
			case "Licence":
				c.Licence = m[2]
			case "Runs":
				c.Runs = m[2]
			case "Excludes":
				c.Excludes = strings.Split(m[2], ", ")
			}
		}
		if c.Licence == "" || c.Summary == "" || !slices.Contains([]string{runsBefore, runsAfter, runsLast}, c.Runs) {
			return nil, fmt.Errorf("%s does not say what it does, which licence it needs and when it runs", name)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Choice) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// summary returns the first sentence of what a script says of itself.
func summary(text string) string {
	_, rest, _ := strings.Cut(text, "-- Storage choice: ")
	rest, _, _ = strings.Cut(strings.ReplaceAll(rest, "\n-- ", " "), ".")
	return strings.TrimSpace(rest)
}

// Install returns the scripts that make the tables and the package, in the order in
// which they run.
func Install(files fs.FS, o Options) ([]Script, error) {
	r, err := newRenderer(files, &o)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(files, o)
	if err != nil {
		return nil, err
	}
	migrations, err := fs.Glob(files, "[0-9]*.sql")
	if err != nil {
		return nil, err
	}
	names := slices.Concat(scriptsOf(chosen, runsBefore), migrations, scriptsOf(chosen, runsAfter), scriptsOf(chosen, runsLast))
	scripts := r.session()
	for _, name := range names {
		if err := r.add(&scripts, name); err != nil {
			return nil, err
		}
	}
	return scripts, nil
}

// Layout returns the scripts that change a set of tables, as long as it has no
// documents, to the layout of o: those with the package body.
func Layout(files fs.FS, o Options) ([]Script, error) {
	o.Choices = slices.DeleteFunc(slices.Clone(o.Choices), func(name string) bool { return name != bodyTables })
	all, err := Install(files, o)
	return slices.DeleteFunc(all, func(s Script) bool { return s.Version > 0 && !strings.Contains(s.Text, layoutMark) }), err
}

// Uninstall returns the scripts that remove everything.
func Uninstall(files fs.FS, o Options) ([]Script, error) {
	r, err := newRenderer(files, &o)
	if err != nil {
		return nil, err
	}
	scripts := r.session()
	return scripts, r.add(&scripts, "uninstall.sql")
}

// choose returns the choices of o, in the order of their names.
func choose(files fs.FS, o Options) ([]Choice, error) {
	all, err := Choices(files)
	if err != nil {
		return nil, err
	}
	var chosen []Choice
	for _, c := range all {
		if slices.Contains(o.Choices, c.Name) {
			chosen = append(chosen, c)
		}
	}
	for _, name := range o.Choices {
		i := slices.IndexFunc(chosen, func(c Choice) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no storage choice %q", name)
		}
		for _, other := range chosen[i].Excludes {
			if slices.Contains(o.Choices, other) {
				return nil, fmt.Errorf("storage choices %s and %s do not go together", name, other)
			}
		}
	}
	if o.Attach != nil && slices.Contains(o.Choices, bodyTables) {
		return nil, fmt.Errorf("text is either in tables of its own or in %s", o.Attach.Shown())
	}
	return chosen, nil
}

// scriptsOf returns the files of the choices that run then.
func scriptsOf(chosen []Choice, when string) (names []string) {
	for _, c := range chosen {
		if c.Runs == when {
			names = append(names, c.file)
		}
	}
	return names
}

// renderer makes scripts of files.
type renderer struct {
	files fs.FS
	o     *Options
	// renamed has the names of this set of objects.
	renamed *strings.Replacer
}

func newRenderer(files fs.FS, o *Options) (*renderer, error) {
	if o.Prefix == "" {
		o.Prefix = Prefix
	}
	if !prefixes.MatchString(o.Prefix) {
		return nil, fmt.Errorf("%q cannot begin the names of tables: use up to 32 of a-z, 0-9 and _, a letter first and _ last", o.Prefix)
	}
	if o.Partitions < 1 || o.Partitions > MaxPartitions {
		return nil, fmt.Errorf("%d partitions: from 1 to %d are possible here", o.Partitions, MaxPartitions)
	}
	return &renderer{files, o, strings.NewReplacer(Prefix, o.Prefix, strings.ToUpper(Prefix), strings.ToUpper(o.Prefix))}, nil
}

// SessionScript is the name of the script that comes first where an owner is given:
// it has the session work in the owner's schema.
const SessionScript = "schema"

// session returns the script that comes first, if there is one.
func (r *renderer) session() []Script {
	if r.o.Owner == "" {
		return nil
	}
	return []Script{{Name: SessionScript, Text: "ALTER SESSION SET CURRENT_SCHEMA = " + r.o.Owner.Quoted() + "\n/\n"}}
}

// add adds the script of a file.
func (r *renderer) add(scripts *[]Script, name string) error {
	text, err := r.text(name)
	if err != nil {
		return err
	}
	version, _ := strconv.ParseInt(strings.SplitN(name, "_", 2)[0], 10, 64)
	if version > 0 {
		if text, err = r.layout(text); err != nil {
			return err
		}
	}
	*scripts = append(*scripts, Script{strings.TrimSuffix(name, ".tmpl"), version, text})
	return nil
}

// text returns a file with the names of this set, executed if it is a template.
func (r *renderer) text(name string) (string, error) {
	data, err := fs.ReadFile(r.files, name)
	if err != nil {
		return "", err
	}
	text := r.renamed.Replace(string(data))
	if !strings.HasSuffix(name, ".tmpl") {
		return text, nil
	}
	return execute(text, "", layoutData{r.o})
}

// layoutMark is in the migration that depends on the layout.
const layoutMark = "-- lobsink:layout begin\n"

// layout puts the parts of another layout into a script that has marks for them.
func (r *renderer) layout(text string) (string, error) {
	name, data := "", any(layoutData{r.o})
	switch {
	case r.o.Attach != nil:
		name, data = "layouts/attached.sql.tmpl", r.o.Attach
	case slices.Contains(r.o.Choices, bodyTables):
		name = "layouts/tables.sql.tmpl"
	default:
		return text, nil
	}
	source, err := fs.ReadFile(r.files, name)
	if err != nil {
		return "", err
	}
	for _, part := range []string{"layout", "body"} {
		mark := "-- lobsink:" + part + " "
		before, rest, found := strings.Cut(text, mark+"begin\n")
		_, after, ended := strings.Cut(rest, mark+"end\n")
		if !found || !ended {
			continue
		}
		inner, err := execute(r.renamed.Replace(string(source)), part, data)
		if err != nil {
			return "", err
		}
		indent := before[strings.LastIndexByte(before, '\n')+1:]
		text = before + mark + "begin\n" + inner + "\n" + indent + mark + "end\n" + after
	}
	return text, nil
}

// layoutData is what templates of layouts and choices ask for.
type layoutData struct{ o *Options }

// Partitions returns the number of the stream's partitions.
func (d layoutData) Partitions() int { return d.o.Partitions }

// BodyTables returns the number of tables with text.
func (d layoutData) BodyTables() int { return d.o.Partitions }

// PartitionNumbers returns the numbers of the stream's partitions, from 0.
func (d layoutData) PartitionNumbers() []int { return numbers(d.o.Partitions) }

// BodyTableNumbers returns the numbers of the tables with text, from 0.
func (d layoutData) BodyTableNumbers() []int { return numbers(d.o.Partitions) }

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// execute executes a template, or one of those that it defines.
func execute(text, part string, data any) (string, error) {
	last := func(int) bool { return false }
	if d, ok := data.(layoutData); ok {
		last = func(n int) bool { return n == d.o.Partitions-1 }
	}
	t, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{"last": last}).Parse(text)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if part == "" {
		err = t.Execute(&b, data)
	} else {
		err = t.ExecuteTemplate(&b, part, data)
	}
	return b.String(), err
}
