package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lobsink/lobsink/internal/telemetry"
)

// app is what all commands share.
type app struct {
	env    environment
	stdout io.Writer // the result of a command and nothing else
	stderr io.Writer // messages, progress, log
	flags  *settingFlags
	// refused is what NATS did not let the command do.
	refused *refusal
}

// environment looks a variable up. An empty one counts as not set.
type environment map[string]string

func newEnvironment(environ []string) environment {
	env := environment{}
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok && value != "" {
			env[name] = value
		}
	}
	return env
}

// run runs one command and returns the exit code. The end of ctx asks for an
// orderly end.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	a := &app{refused: new(refusal), env: newEnvironment(environ), stdout: stdout, stderr: stderr, flags: newSettingFlags()}
	root := a.rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	err = a.refused.explain(err)
	code := exitCode(err)
	if code == exitUnavailable && ctx.Err() != nil {
		code = exitFailed // it is we who went away
	}
	if text := redact(err.Error()); text != "" {
		fmt.Fprintf(stderr, "lobsink: %s\n", text)
	}
	if code == exitUsage {
		fmt.Fprintf(stderr, "Try: %s --help\n", cmd.CommandPath())
	}
	return code
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lobsink",
		Short: "Turn streams of XML fragments into whole documents in a database",
		Long: `lobsink turns a stream of small XML fragments into whole documents in a
database. Producers publish fragments, keyed by document ID, to NATS JetStream.
lobsink groups them by document in memory, appends each group with one buffered
write, and acknowledges only after the commit: every fragment exactly once, in
order, byte for byte.

Settings come from flags, from environment variables (LOBSINK_ and the name of
the flag in capitals, with underscores: LOBSINK_MAX_AGE), from the YAML file
that --config names, and from defaults, in this order. NATS_URL, NATS_CREDS,
NATS_NKEY, NATS_CA, NATS_CERT and NATS_KEY are read as well, below the file.

Exit codes: 0 done, 1 failed, 2 done but something was refused, 64 wrong usage,
69 NATS or the database cannot be reached, 78 wrong configuration.`,
		Example: `  lobsink demo                   # see it work; leaves nothing behind
  lobsink run                    # serve NATS on 127.0.0.1:4222 and store fragments
  lobsink pub report.xml         # in another terminal
  lobsink doc ls
  lobsink doc cat report.xml | cmp - report.xml`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	asGroup(root)
	root.PersistentFlags().StringVarP(&a.flags.config, "config", "c", "", "read settings from this YAML `file` (env LOBSINK_CONFIG)")
	a.flags.add(root.PersistentFlags(), "nats", "nats_context", "nats_creds", "nats_nkey", "nats_ca", "nats_cert", "nats_key", "nats_domain", "store", "oracle_owner", "stream", "data_dir", "log_level", "log_format")
	root.AddCommand(a.commands()...)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = helpTopic
			cmd.Example = "  lobsink help doc cat"
		}
	}
	return root
}

// commands returns all commands, in the order of the help.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.demoCommand(),
		a.runCommand(),
		a.setupCommand(),
		a.configCommand(),
		a.statusCommand(),
		a.checkCommand(),
		a.doctorCommand(),
		a.healthcheckCommand(),
		a.flushCommand(),
		a.pauseCommand(),
		a.resumeCommand(),
		a.publishCommand(),
		a.documentCommand(),
		a.deadLetterCommand(),
		a.replayCommand(),
		a.checkpointCommand(),
		a.partitionsCommand(),
		a.schemaCommand(),
		a.benchCommand(),
		a.manualCommand(),
		a.versionCommand(),
	}
}

// asGroup makes cmd a command that does nothing but hold others. Alone it shows
// its help; an unknown command below it is wrong usage.
func asGroup(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
			text += "; did you mean " + strings.Join(s, " or ") + "?"
		}
		return usage("%s", text)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
}

// helpTopic refuses help about a command that there is not.
func helpTopic(cmd *cobra.Command, args []string) error {
	if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
		return usage("there is no command %q", strings.Join(args, " "))
	}
	return nil
}

// arguments makes a wrong number of arguments wrong usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		line := cmd.UseLine()
		if len(args) == 0 {
			return usage("an argument is missing: %s", line)
		}
		return usage("%q is too much: %s", args[len(args)-1], line)
	}
}

// flagError says what is wrong with a flag without repeating what may be a
// password.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		return usage("--%s: %w", value.GetFlag().Name, value.Unwrap())
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := unknown.GetSpecifiedName()
		if near := nearest(name, names); near != "" {
			return usage("unknown flag --%s; did you mean --%s?", name, near)
		}
	}
	return withCode(exitUsage, err)
}

// repeatLog is for how long a warning that was logged is not logged again.
const repeatLog = 10 * time.Second

// logger returns the log of a command that runs for long.
func (a *app) logger(cfg *Config) *slog.Logger {
	return telemetry.NewLogger(a.stderr, telemetry.LogOptions{
		Format: cfg.LogFormat, Level: cfg.LogLevel, NoColor: a.env["NO_COLOR"] != "", RepeatAfter: repeatLog,
	})
}
