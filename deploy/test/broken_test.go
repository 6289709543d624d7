package deploytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBroken: values that a schema takes, and that are wrong all the same. Each
// stands for one rule of a check.
func TestBroken(t *testing.T) {
	for _, broken := range []struct{ file, right, wrong string }{
		{"container/Dockerfile", "COPY --from=build-static /out/usr", "COPY --from=build-statik /out/usr"},
		{"container/Dockerfile", "AS static\n", "AS statik\n"},
		{"container/Dockerfile", "USER 65532:65532", "USER root"},
		{"container/Dockerfile", "EXPOSE 7070", "EXPOSE 7071"},
		{"container/Dockerfile.dockerignore", "!internal\n", ""},
		{"container/Dockerfile.dockerignore", "*\n", ""},
		{"compose/compose.yaml", "setup: {condition", "set-up: {condition"},
		{"compose/compose.yaml", "service_healthy", "service_is_healthy"},
		{"compose/compose.yaml", "file: nats.conf", "file: nats.config"},
		{"compose/compose.yaml", "stop_grace_period: 60s", "stop_grace_period: 60 seconds"},
		{"kubernetes/10-configuration.yaml", "drain_timeout: 30s", "drain_timeout: 90s"},
		{"kubernetes/10-configuration.yaml", "partitions: 8", "partitions: 16"},
		{"kubernetes/20-setup.yaml", "key: store", "key: url"},
		{"kubernetes/20-setup.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"},
		{"kubernetes/20-setup.yaml", "runAsNonRoot: true", "runAsNonRoot: yes please"},
		{"kubernetes/30-lobsink.yaml", "path: /livez", "path: /healthz"},
		{"kubernetes/30-lobsink.yaml", "terminationGracePeriodSeconds: 75", "terminationGracePeriodSeconds: 30"},
		{"kubernetes/30-lobsink.yaml", "/etc/lobsink/lobsink.yaml", "/etc/lobsink.yaml"},
		{"kubernetes/30-lobsink.yaml", "name: lobsink\n  namespace: lobsink", "name: lobsink\n  namespace: default"},
		{"kubernetes/30-lobsink.yaml", "drop: [ALL]", "drop: [NET_RAW]"},
		{"kubernetes/40-podmonitor.yaml", "port: http", "port: metrics"},
		{"kubernetes/40-podmonitor.yaml", "matchLabels: {app.kubernetes.io/name: lobsink}", "matchLabels: {app: lobsink}"},
		{"kubernetes/50-scaling.yaml", "maxReplicaCount: 8", "maxReplicaCount: 12"},
		{"kubernetes/50-scaling.yaml", "minReplicaCount: 2", "minReplicaCount: 0"},
		{"kubernetes/50-scaling.yaml", "    name: lobsink\n  polling", "    name: lobsinc\n  polling"},
		{"kubernetes/50-scaling.yaml", "query: sum(", "query: sum(("},
		{"kubernetes/50-scaling.yaml", "pollingInterval: 30", "pollingInterval: soon"},
		{"systemd/lobsink.service", "WatchdogSec=60s", "WatchdogSec=soon"},
		{"systemd/lobsink.service", "Type=notify", "Type=notified"},
		{"systemd/lobsink.service", "/usr/bin/lobsink run", "/usr/local/bin/lobsink run"},
		{"systemd/lobsink.service", "DynamicUser=yes\n", ""},
		{"prometheus/alerts.yaml", "< 1\n", "<< 1\n"},
		{"prometheus/alerts.yaml", "{{ $labels.instance }}", "{{ $label.instance }}"},
		{"prometheus/alerts.yaml", "> 300", "> 3000"},
		{"prometheus/alerts_test.yaml", "alertname: LobsinkDown\n", "alertname: LobsinkGone\n"},
		{"prometheus/alerts_test.yaml", "1x2 0x10", "1x12"},
		{"prometheus/prometheus.yaml", "alerts.yaml", "alert.yaml"},
		{"prometheus/prometheus.yaml", "15s", "15 seconds"},
		{"grafana/lobsink.json", `"type": "stat"`, `"type": "state"`},
		{"grafana/lobsink.json", "sum(rate(", "sum((rate("},
		{"grafana/lobsink.json", `"x": 4`, `"x": 0`},
	} {
		t.Run(broken.file+"/"+strings.TrimSpace(broken.wrong), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(root, broken.file)
			f := formatOf(t, path)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(content), broken.right) {
				t.Fatalf("it has no %q any more", broken.right)
			}
			if f.check(copyWith(t, path, strings.Replace(string(content), broken.right, broken.wrong, 1))) == nil {
				t.Errorf("%q in place of %q, and nobody notices", broken.wrong, broken.right)
			}
		})
	}
}

// formatOf returns the format of a file.
func formatOf(t *testing.T, path string) *format {
	t.Helper()
	for i := range formats {
		for _, p := range formats[i].paths(t) {
			if p == path {
				return &formats[i]
			}
		}
	}
	t.Fatalf("%s has no format", path)
	return nil
}

// copyWith copies a file's folder, with another content of the file, and returns
// the file's path there.
func copyWith(t *testing.T, path, content string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
