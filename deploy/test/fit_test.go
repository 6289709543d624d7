package deploytest

import (
	"fmt"
	"path"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// fit looks whether the objects refer to each other by the right names, and holds
// the pods to what a cluster's policies ask of them.
func (m *manifests) fit() error {
	for name, n := range map[string]int{
		"Namespace": len(m.namespaces), "ConfigMap": len(m.configs), "Secret": len(m.secrets), "ServiceAccount": len(m.accounts),
		"Job": len(m.jobs), "Deployment": len(m.deployments), "PodDisruptionBudget": len(m.budgets), "PodMonitor": len(m.monitors), "ScaledObject": len(m.scalers),
	} {
		if n != 1 {
			return fmt.Errorf("%d objects of kind %s, want one", n, name)
		}
	}
	deployment := m.deployments[0]
	for _, o := range []meta.Object{m.configs[0], m.secrets[0], m.accounts[0], m.jobs[0], deployment, m.budgets[0], m.monitors[0], m.scalers[0]} {
		if o.GetNamespace() != m.namespaces[0].Name || o.GetName() == "" {
			return fmt.Errorf("%T %s is in namespace %q, not %q", o, o.GetName(), o.GetNamespace(), m.namespaces[0].Name)
		}
	}
	labels := deployment.Spec.Template.Labels
	selectors := []*meta.LabelSelector{deployment.Spec.Selector, m.budgets[0].Spec.Selector, &m.monitors[0].Spec.Selector}
	for _, c := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selectors = append(selectors, c.LabelSelector)
	}
	for _, s := range selectors {
		if err := selects(s, labels); err != nil {
			return err
		}
	}
	if labels[m.monitors[0].Spec.JobLabel] != "lobsink" {
		return fmt.Errorf("the label %q of the pods is no job that the alerts know", m.monitors[0].Spec.JobLabel)
	}
	if err := m.pod(&m.jobs[0].Spec.Template.Spec); err != nil {
		return fmt.Errorf("Job: %w", err)
	}
	pod := &deployment.Spec.Template.Spec
	if pod.ServiceAccountName != m.accounts[0].Name {
		return fmt.Errorf("no service account %q", pod.ServiceAccountName)
	}
	if err := m.pod(pod); err != nil {
		return fmt.Errorf("Deployment: %w", err)
	}
	return m.serves(pod)
}

// selects reports whether a selector finds pods with these labels.
func selects(s *meta.LabelSelector, labels map[string]string) error {
	if s == nil || len(s.MatchLabels) == 0 {
		return fmt.Errorf("a selector without labels: %v", s)
	}
	for name, value := range s.MatchLabels {
		if labels[name] != value {
			return fmt.Errorf("the selector %s=%s does not find pods with %v", name, value, labels)
		}
	}
	return nil
}

// pod checks what every pod has to have.
func (m *manifests) pod(p *core.PodSpec) error {
	c := &p.Containers[0]
	switch {
	case len(p.Containers) != 1:
		return fmt.Errorf("%d containers, want one", len(p.Containers))
	case p.SecurityContext == nil || !isTrue(p.SecurityContext.RunAsNonRoot) || p.SecurityContext.SeccompProfile == nil:
		return fmt.Errorf("it may run as root, or without seccomp")
	case c.SecurityContext == nil || !isTrue(c.SecurityContext.ReadOnlyRootFilesystem) || c.SecurityContext.AllowPrivilegeEscalation == nil ||
		*c.SecurityContext.AllowPrivilegeEscalation || c.SecurityContext.Capabilities == nil || !slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL"):
		return fmt.Errorf("its container may do more than it needs")
	case p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken:
		return fmt.Errorf("it gets a token for the API server, which it does not use")
	}
	for _, list := range []core.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		if list.Memory().IsZero() {
			return fmt.Errorf("no memory is asked for, or no limit set")
		}
		for name := range list {
			if name != core.ResourceMemory && name != core.ResourceCPU {
				return fmt.Errorf("there is no resource %q", name)
			}
		}
	}
	for _, e := range c.Env {
		if ref := e.ValueFrom; ref != nil && ref.SecretKeyRef != nil {
			secret := m.secrets[0]
			if _, ok := secret.StringData[ref.SecretKeyRef.Key]; !ok || ref.SecretKeyRef.Name != secret.Name {
				return fmt.Errorf("the secret %s has no %s", ref.SecretKeyRef.Name, ref.SecretKeyRef.Key)
			}
		}
	}
	return m.mounts(p, c)
}

// mounts checks that the configuration is where the arguments say.
func (m *manifests) mounts(p *core.PodSpec, c *core.Container) error {
	there := map[string]bool{}
	for _, mount := range c.VolumeMounts {
		i := slices.IndexFunc(p.Volumes, func(v core.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			return fmt.Errorf("no volume %s", mount.Name)
		}
		if from := p.Volumes[i].ConfigMap; from != nil {
			if from.Name != m.configs[0].Name {
				return fmt.Errorf("no ConfigMap %s", from.Name)
			}
			for key := range m.configs[0].Data {
				there[path.Join(mount.MountPath, key)] = true
			}
		}
	}
	i := slices.Index(c.Args, "--config")
	if i < 0 || i+1 == len(c.Args) || !there[c.Args[i+1]] {
		return fmt.Errorf("the arguments %q name no file that is mounted: %v", c.Args, there)
	}
	return nil
}

// serves checks what a pod that runs for long has to have.
func (m *manifests) serves(p *core.PodSpec) error {
	c := &p.Containers[0]
	if len(c.Ports) == 0 || len(m.monitors[0].Spec.PodMetricsEndpoints) == 0 {
		return fmt.Errorf("no port, or none whose metrics are read")
	}
	port := c.Ports[0].Name
	if name := m.monitors[0].Spec.PodMetricsEndpoints[0].Port; name == nil || *name != port {
		return fmt.Errorf("metrics are read from another port than %s", port)
	}
	for _, probe := range []struct {
		path string
		*core.Probe
	}{{"/livez", c.StartupProbe}, {"/livez", c.LivenessProbe}, {"/readyz", c.ReadinessProbe}} {
		if probe.Probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != probe.path || probe.HTTPGet.Port.StrVal != port {
			return fmt.Errorf("a probe does not ask for %s on port %s: %+v", probe.path, port, probe.Probe)
		}
	}
	// A duration is text for us: lobsink's own tests read the file as it does.
	var settings struct {
		Partitions   int
		DrainTimeout string `json:"drain_timeout"`
		FlushTimeout string `json:"flush_timeout"`
	}
	for _, content := range m.configs[0].Data {
		if err := yaml.Unmarshal([]byte(content), &settings); err != nil {
			return err
		}
	}
	drain, err := time.ParseDuration(settings.DrainTimeout)
	if err != nil {
		return err
	}
	flush, err := time.ParseDuration(settings.FlushTimeout)
	if err != nil {
		return err
	}
	const wayOut = 10 * time.Second // leaving the database, the last scrape
	if need := drain + flush + wayOut; p.TerminationGracePeriodSeconds == nil || time.Duration(*p.TerminationGracePeriodSeconds)*time.Second < need {
		return fmt.Errorf("terminationGracePeriodSeconds is below %s", need)
	}
	return m.scalers[0].fit(m.deployments[0].Name, settings.Partitions)
}

func isTrue(b *bool) bool { return b != nil && *b }
