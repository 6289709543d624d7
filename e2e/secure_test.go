package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// secureBroker is a NATS server that asks for TLS on both sides and for an NKey,
// and whose JetStream has a domain.
type secureBroker struct {
	url, domain, ca, cert, key, seed string
}

func startSecureBroker(t *testing.T) *secureBroker {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority, authorityKey := certificate(t, nil, nil)
	own, ownKey := certificate(t, authority, authorityKey)
	keyBytes, err := x509.MarshalECPrivateKey(ownKey)
	if err != nil {
		t.Fatal(err)
	}
	b := &secureBroker{domain: "hub"}
	b.ca = file("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}))
	b.cert = file("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Raw}))
	b.key = file("key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyBytes}))
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	b.seed = file("user.nk", seed)

	pool := x509.NewCertPool()
	pool.AddCert(authority)
	port := freePort(t)
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: filepath.Join(dir, "js"), JetStreamDomain: b.domain, NoSigs: true, NoLog: true,
		Nkeys: []*server.NkeyUser{{Nkey: public}}, TLS: true, TLSTimeout: 10, AuthTimeout: 10,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: ownKey}},
			ClientCAs:    pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("nats-server not ready")
	}
	b.url = fmt.Sprintf("tls://127.0.0.1:%d", port)
	return b
}

// certificate makes one for 127.0.0.1, signed by issuer, or its own issuer.
func certificate(t *testing.T, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "lobsink test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: issuer == nil,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if issuer == nil {
		issuer, issuerKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed, key
}

// flags are the settings for the server.
func (b *secureBroker) flags() []string {
	return []string{"--nats", b.url, "--nats-ca", b.ca, "--nats-cert", b.cert, "--nats-key", b.key, "--nats-nkey", b.seed, "--nats-domain", b.domain}
}

// context writes a context of the nats command for the server.
func (b *secureBroker) context(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(map[string]string{
		"url": b.url, "ca": b.ca, "cert": b.cert, "key": b.key, "nkey": b.seed, "jetstream_domain": b.domain,
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "context.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecureNATS: TLS on both sides, an NKey and a JetStream domain, by settings
// and by a context of the nats command; what is missing is said.
func TestSecureNATS(t *testing.T) {
	t.Parallel()
	b := startSecureBroker(t)
	db := sqliteDatabase(t)
	xml := filepath.Join(t.TempDir(), "report.xml")
	text := "<report>" + strings.Repeat("<line>ä</line>", 50) + "</report>"
	if err := os.WriteFile(xml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	context := []string{"--nats-context", b.context(t)}
	must(t, append([]string{"setup", "--store", db.url}, b.flags()...)...)
	s := startSink(t, append([]string{"--store", db.url, "--max-age", "20ms"}, context...)...)
	s.ready()
	must(t, append([]string{"pub", "--key", "by-settings", xml}, b.flags()...)...)
	must(t, append([]string{"pub", "--key", "by-context", xml}, context...)...)
	for _, key := range []string{"by-settings", "by-context"} {
		eventually(t, time.Minute, func() error {
			if got, errs, _ := call(t, "doc", "cat", key, "--store", db.url); got != text {
				return fmt.Errorf("%s: %s%s", key, difference(got, text), errs)
			}
			return nil
		})
	}
	must(t, append([]string{"status"}, b.flags()...)...)
	must(t, append([]string{"dlq", "ls"}, context...)...)
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}

	without := func(names ...string) []string {
		var out []string
		flags := b.flags()
		for i := 0; i < len(flags); i += 2 {
			if !strings.Contains(strings.Join(names, " ")+" ", flags[i]+" ") {
				out = append(out, flags[i], flags[i+1])
			}
		}
		return out
	}
	for _, c := range []struct {
		name  string
		flags []string
		code  int
		says  string
	}{
		{"no authority", without("--nats-ca"), 78, "--nats-ca"},
		{"no NKey", without("--nats-nkey"), 78, "refuses who we are"},
		{"no such file", append(without("--nats-nkey"), "--nats-nkey", "none"), 78, "--nats-nkey"},
		{"half a certificate", without("--nats-key"), 78, "nats_cert and nats_key belong together"},
		{"two servers", append(b.flags(), context...), 78, "nats and nats_context both name a server"},
		{"another domain", append(without("--nats-domain"), "--nats-domain", "elsewhere"), 69, "elsewhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, errs, code := call(t, append([]string{"dlq", "ls"}, c.flags...)...)
			if code != c.code || !strings.Contains(errs, c.says) {
				t.Errorf("exit %d, want %d with %q: %s", code, c.code, c.says, errs)
			}
		})
	}
}
