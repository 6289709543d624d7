package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOracleURLs(t *testing.T) {
	for text, want := range map[string]oracleLogon{
		"oracle:bob@db":                            {"bob", "db"},
		"oracle:bob@//host:1521/docs":              {"bob", "//host:1521/docs"},
		"oracle:@docs":                             {"", "docs"},
		"oracle:proxy[bob]@docs":                   {"proxy[bob]", "docs"},
		`oracle:"Bob"@(DESCRIPTION=(ADDRESS=x@y))`: {`"Bob"`, "(DESCRIPTION=(ADDRESS=x@y))"},
	} {
		if got, err := parseStore(text); err != nil || got.oracle != want || got.path != "" || got.postgres != "" {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"oracle:", "oracle:docs", "oracle:bob@", "oracle:bob/hunter2@docs", "oracle:bob:hunter2@docs", "oracle://bob@docs"} {
		_, err := parseStore(text)
		if err == nil {
			t.Errorf("%s is taken", text)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the password: %v", text, err)
		}
	}
}

// TestOraclePassword: it comes from the environment or from a file, which is read
// again each time.
func TestOraclePassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	load := func(env ...string) (*Config, error) {
		var out bytes.Buffer
		a := &app{env: newEnvironment(append(env, "LOBSINK_STORE=oracle:bob@docs")), stdout: &out, stderr: &out, flags: newSettingFlags()}
		return a.load()
	}
	if _, err := load(); err == nil || !strings.Contains(err.Error(), "LOBSINK_ORACLE_PASSWORD") {
		t.Errorf("without a password: %v", err)
	}
	c, err := load("LOBSINK_ORACLE_PASSWORD_FILE=" + file)
	if err != nil {
		t.Fatal(err)
	}
	if c.Lease != 30*time.Second || c.FlushTimeout != 25*time.Second || c.Renew != 9*time.Second || c.DefaultPartitions() != 8 {
		t.Errorf("lease %s, flush_timeout %s, renew %s, %d partitions", c.Lease, c.FlushTimeout, c.Renew, c.DefaultPartitions())
	}
	for _, want := range []string{"old", "new"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.oracle.password(context.Background()); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if c, err = load("LOBSINK_ORACLE_PASSWORD=secret", "LOBSINK_LEASE=10s"); err != nil || c.Lease != 10*time.Second {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := load("LOBSINK_ORACLE_PASSWORD=x", "LOBSINK_ORACLE_SERVICES=a b", "LOBSINK_ORACLE_TAKEOVER=c"); err == nil {
		t.Error("a takeover for one of two services is taken")
	}
}
