package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"no secret":                                  "no secret",
		"sqlite:/var/lib/x.db":                       "sqlite:/var/lib/x.db",
		"postgres://db/docs":                         "postgres://db/docs",
		"postgres://bob@db/docs":                     "postgres://bob@db/docs",
		"postgres://bob:pw@db/docs":                  "postgres://bob:xxxxx@db/docs",
		"postgresql://bob:p:w@db/docs":               "postgresql://bob:xxxxx@db/docs",
		"postgres://bob:p@w/x@db/docs":               "postgres://bob:xxxxx@db/docs",
		"postgres://bob:@db/docs":                    "postgres://bob:xxxxx@db/docs",
		"nats://token@host:4222":                     "nats://xxxxx@host:4222",
		"nats://a:1@h1,nats://b:2@h2":                "nats://a:xxxxx@h1,nats://b:xxxxx@h2",
		"nats://h1:4222,tls://a:b@h2:1":              "nats://h1:4222,tls://a:xxxxx@h2:1",
		`dial "nats://a:1@h": refused`:               `dial "nats://a:xxxxx@h": refused`,
		"postgres://db/d?password=pw&x=1":            "postgres://db/d?password=xxxxx&x=1",
		"postgres://db/d?sslpassword=pw":             "postgres://db/d?sslpassword=xxxxx",
		"two postgres://a:b@c and nats://d:e@f here": "two postgres://a:xxxxx@c and nats://d:xxxxx@f here",
	} {
		if got := redact(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestNoSecretIsPrinted: whatever is wrong, and wherever the URL comes from, the
// password is in no output.
func TestNoSecretIsPrinted(t *testing.T) {
	const secret = "hunter2"
	stores := []string{
		"postgres://bob:hunter2@127.0.0.1:1/docs?connect_timeout=1",
		"postgres://bob:hunter2@127.0.0.1:port/docs",
		"postgres://bob:hunter2%zz@db/docs",
		"postgres://bob:hun ter2 hunter2@db/docs",
		"postgres:bob:hunter2@db/docs",
		"mysql://bob:hunter2@db/docs",
		"oracle://bob:hunter2@db/docs",
		"hunter2",
	}
	servers := []string{
		"nats://bob:hunter2@127.0.0.1:1",
		"nats://hunter2@127.0.0.1:1",
		"nats://127.0.0.1:1,nats://bob:hunter2@127.0.0.1:1",
		"http://bob:hunter2@127.0.0.1",
		"nats://bob:hunter2%zz@127.0.0.1",
		"://bob:hunter2@",
	}
	check := func(args, environ []string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := run(t.Context(), args, environ, &out, &errs)
		if code == exitOK {
			t.Errorf("%q %q: exit 0", args, environ)
		}
		if text := out.String() + errs.String(); strings.Contains(text, secret) {
			t.Errorf("%q %q prints the secret: %s", args, environ, text)
		}
	}
	for _, store := range stores {
		check([]string{"doc", "ls", "--store", store}, nil)
		check([]string{"setup", "--store", store}, nil)
		check([]string{"doc", "ls"}, []string{"LOBSINK_STORE=" + store})
	}
	for _, server := range servers {
		check([]string{"dlq", "ls", "--nats", server}, nil)
		check([]string{"dlq", "ls"}, []string{"LOBSINK_NATS=" + server})
		check([]string{"setup", "--store", "sqlite:" + t.TempDir() + "/x.db"}, []string{"LOBSINK_NATS=" + server})
	}
}
