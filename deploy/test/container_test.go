package deploytest

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// repository is the root of the repository, which is the context of the build.
const repository = "../.."

// targets are the stages that a user builds.
var targets = []string{"static", "oracle"}

// readStages parses a Dockerfile with BuildKit's frontend. What its linter warns
// of is an error.
func readStages(path string) (stages []instructions.Stage, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tree, err := parser.Parse(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	var warned []string
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, at []parser.Range) {
		warned = append(warned, fmt.Sprintf("%s: %s %v", rule, message, at))
	}})
	stages, _, err = instructions.Parse(tree.AST, lint)
	if err == nil && len(warned) > 0 {
		err = fmt.Errorf("%s", strings.Join(warned, "\n"))
	}
	return stages, err
}

// checkDockerfile parses the file and checks that what its stages take from each
// other is there.
func checkDockerfile(path string) error {
	stages, err := readStages(path)
	if err != nil {
		return err
	}
	for _, target := range targets {
		if _, ok := instructions.HasStage(stages, target); !ok {
			return fmt.Errorf("no target %s", target)
		}
	}
	for i := range stages {
		stage := &stages[i]
		for _, command := range stage.Commands {
			from := ""
			if c, ok := command.(*instructions.CopyCommand); ok {
				from = c.From
			}
			if _, ok := instructions.HasStage(stages[:i], from); from != "" && !ok {
				return fmt.Errorf("stage %s copies from %s, which no stage above is", stage.Name, from)
			}
		}
		if slices.Contains(targets, stage.Name) {
			if err := checkTarget(stage); err != nil {
				return fmt.Errorf("target %s: %w", stage.Name, err)
			}
		}
	}
	return nil
}

// checkTarget checks that an image runs lobsink, not as root, and says where.
func checkTarget(stage *instructions.Stage) error {
	var user, entry, port string
	variables := map[string]string{}
	for _, command := range stage.Commands {
		switch c := command.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			entry = strings.Join(c.CmdLine, " ")
		case *instructions.ExposeCommand:
			port = strings.Join(c.Ports, " ")
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				variables[pair.Key] = pair.Value
			}
		}
	}
	if user == "" || strings.HasPrefix(user, "0") || user == "root" {
		return fmt.Errorf("it runs as %q", user)
	}
	if entry != "/usr/bin/lobsink" || !strings.HasSuffix(variables["LOBSINK_HTTP"], ":"+port) {
		return fmt.Errorf("it runs %q, serves %q and exposes %q", entry, variables["LOBSINK_HTTP"], port)
	}
	return nil
}

// misspellDockerfile misspells each instruction and each of its flags.
func misspellDockerfile(content string) (map[string]string, error) {
	tree, err := parser.Parse(strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(content, "\n")
	copies := map[string]string{}
	for _, node := range tree.AST.Children {
		line := node.StartLine - 1
		words := []string{strings.Fields(lines[line])[0]}
		for _, f := range node.Flags {
			name, _, _ := strings.Cut(f, "=")
			words = append(words, name)
		}
		for _, word := range words {
			broken, err := replaceAt(lines, line, strings.Index(lines[line], word), word)
			if err != nil {
				return nil, err
			}
			copies[fmt.Sprintf("line %d, %s", line+1, word)] = broken
		}
	}
	return copies, nil
}

// sendContext copies what a build would be sent: the repository without what
// Dockerfile.dockerignore leaves out.
func sendContext(ignore, to string) error {
	f, err := os.Open(ignore)
	if err != nil {
		return err
	}
	defer f.Close()
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return err
	}
	matcher, err := patternmatcher.New(patterns)
	if err != nil {
		return err
	}
	return filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(repository, path)
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(name, ".git") || name == filepath.Join("deploy", "test") {
				return filepath.SkipDir
			}
			return nil
		}
		if out, err := matcher.MatchesOrParentMatches(filepath.ToSlash(name)); err != nil || out {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o750); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o600)
	})
}

// checkDockerignore checks that what a build is sent is all that it needs: every
// package, and every file that is embedded.
func checkDockerignore(path string) error {
	dir, err := os.MkdirTemp("", "context")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := sendContext(path, dir); err != nil {
		return err
	}
	for _, notSent := range []string{"README.md", "e2e", "deploy/test", "deploy/oracle/check", ".git"} {
		if _, err := os.Stat(filepath.Join(dir, notSent)); err == nil {
			return fmt.Errorf("%s is sent to the build, which does not need it", notSent)
		}
	}
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-deps", "./cmd/lobsink")
	cmd.Dir, cmd.Stderr = dir, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go list in the context of the build: %w\n%s", err, stderr.Bytes())
	}
	return nil
}

// builds finds `CGO_ENABLED=0 go build FLAGS -o FILE PACKAGE` in a RUN.
var builds = regexp.MustCompile(`(CGO_ENABLED=[01]) (go build .*)`)

// TestContainerBuilds runs the go build of each image, with what the build would
// be sent, and starts what comes out. No image is made: that needs a container
// engine, which is not asked for here.
func TestContainerBuilds(t *testing.T) {
	file := filepath.Join(root, "container", "Dockerfile")
	stages, err := readStages(file)
	if err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	if err := sendContext(file+".dockerignore", source); err != nil {
		t.Fatal(err)
	}
	built := 0
	for _, stage := range stages {
		for _, command := range stage.Commands {
			run, ok := command.(*instructions.RunCommand)
			if !ok {
				continue
			}
			found := builds.FindStringSubmatch(strings.Join(run.CmdLine, " "))
			if found == nil {
				continue
			}
			built++
			t.Run(stage.Name, func(t *testing.T) {
				out := t.TempDir()
				line := strings.Replace(found[0], " -o /out/", " -buildvcs=false -o "+out+"/", 1)
				// It changes no outcome, and every package would be built again.
				line = strings.Replace(line, " -trimpath ", " ", 1)
				if err := shell(t.Context(), source, line); err != nil {
					t.Fatal(err)
				}
				if err := shell(t.Context(), out, "usr/bin/lobsink version"); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if built != len(targets) {
		t.Errorf("%d builds, want one for each of %q", built, targets)
	}
}

func shell(ctx context.Context, dir, line string) error {
	cmd := exec.CommandContext(ctx, "sh", "-euc", line)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return nil
}
