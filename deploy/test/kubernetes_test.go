package deploytest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifests are all objects of a folder.
type manifests struct {
	namespaces  []*core.Namespace
	configs     []*core.ConfigMap
	secrets     []*core.Secret
	accounts    []*core.ServiceAccount
	jobs        []*batch.Job
	deployments []*apps.Deployment
	budgets     []*policy.PodDisruptionBudget
	monitors    []*monitoring.PodMonitor
	scalers     []*scaledObject
}

// checkKubernetes decodes every manifest of the folder strictly, and then looks
// whether they fit each other.
func checkKubernetes(path string) error {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.yaml"))
	if err != nil {
		return err
	}
	var m manifests
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, doc := range bytes.Split(content, []byte("\n---\n")) {
			if err := m.add(doc); err != nil {
				return fmt.Errorf("%s: %w", filepath.Base(file), err)
			}
		}
	}
	return m.fit()
}

// add decodes one object. The API server refuses what it refuses: unknown fields,
// fields given twice, and names of fields in another case.
func (m *manifests) add(doc []byte) error {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 Namespace":
		return decode(doc, &m.namespaces)
	case "v1 ConfigMap":
		return decode(doc, &m.configs)
	case "v1 Secret":
		return decode(doc, &m.secrets)
	case "v1 ServiceAccount":
		return decode(doc, &m.accounts)
	case "batch/v1 Job":
		return decode(doc, &m.jobs)
	case "apps/v1 Deployment":
		return decode(doc, &m.deployments)
	case "policy/v1 PodDisruptionBudget":
		return decode(doc, &m.budgets)
	case "monitoring.coreos.com/v1 PodMonitor":
		return decode(doc, &m.monitors)
	case "keda.sh/v1alpha1 ScaledObject":
		if err := checkScaledObject(doc); err != nil {
			return err
		}
		return decode(doc, &m.scalers)
	}
	return fmt.Errorf("nothing is known about %s %s", kind.APIVersion, kind.Kind)
}

func decode[T any](doc []byte, into *[]*T) error {
	json, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	object := new(T)
	unknown, err := strictjson.UnmarshalStrict(json, object)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return err
	}
	*into = append(*into, object)
	return nil
}
