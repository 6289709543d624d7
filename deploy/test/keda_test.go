package deploytest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	// KEDA's types need 800 packages. Its own schema of a ScaledObject lies in
	// the same module, which this import holds in go.mod.
	_ "github.com/kedacore/keda/v2/version"
	"github.com/santhosh-tekuri/jsonschema/v6"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// scaledObject is what the other checks need of a ScaledObject.
type scaledObject struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	// Spec is checked by KEDA's schema.
	Spec map[string]any `json:"spec"`
}

// scaledObjectSchema is KEDA's schema, made strict.
var scaledObjectSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2").Output()
	if err != nil {
		return nil, fmt.Errorf("where is KEDA's module: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/bases/keda.sh_scaledobjects.yaml"))
	if err != nil {
		return nil, err
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return nil, err
	}
	for _, v := range crd.Spec.Versions {
		if v.Name == "v1alpha1" {
			closeSchema(v.Schema.OpenAPIV3Schema)
			c := jsonschema.NewCompiler()
			if err := c.AddResource("scaledobject.json", v.Schema.OpenAPIV3Schema); err != nil {
				return nil, err
			}
			return c.Compile("scaledobject.json")
		}
	}
	return nil, errors.New("KEDA's schema has no v1alpha1")
})

// closeSchema forbids, at every depth, the fields that the schema does not have,
// as `kubectl apply --validate=strict` does.
func closeSchema(schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	if _, open := schema["x-kubernetes-preserve-unknown-fields"]; properties != nil && !open {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		if s, ok := p.(map[string]any); ok {
			closeSchema(s)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		closeSchema(items)
	}
}

func checkScaledObject(doc []byte) error {
	schema, err := scaledObjectSchema()
	if err != nil {
		return err
	}
	var object any
	if err := yaml.UnmarshalStrict(doc, &object); err != nil {
		return err
	}
	return schema.Validate(object)
}

// prometheusTrigger are the metadata of KEDA's Prometheus scaler that we use. Its
// schema says nothing about them: they are another one for each type of trigger.
var prometheusTrigger = map[string]bool{"serverAddress": true, "query": true, "threshold": true}

// fit checks a ScaledObject against what it scales and how many there can be.
func (s *scaledObject) fit(deployment string, partitions int) error {
	target, _ := s.Spec["scaleTargetRef"].(map[string]any)
	if target["name"] != deployment {
		return fmt.Errorf("it scales %v, not %s", target["name"], deployment)
	}
	if n, ok := s.Spec["maxReplicaCount"].(int64); !ok || int(n) != partitions {
		return fmt.Errorf("maxReplicaCount is %v, with %d partitions", s.Spec["maxReplicaCount"], partitions)
	}
	if n, ok := s.Spec["minReplicaCount"].(int64); !ok || n < 1 {
		return fmt.Errorf("minReplicaCount is %v: nobody would know the lag", s.Spec["minReplicaCount"])
	}
	triggers, _ := s.Spec["triggers"].([]any)
	for _, t := range triggers {
		trigger, _ := t.(map[string]any)
		metadata, _ := trigger["metadata"].(map[string]any)
		for key := range metadata {
			if !prometheusTrigger[key] {
				return fmt.Errorf("a trigger has no %s", key)
			}
		}
		for key := range prometheusTrigger {
			if metadata[key] == nil {
				return fmt.Errorf("a trigger without %s", key)
			}
		}
		query, _ := metadata["query"].(string)
		if err := checkExpressions([]string{query}); err != nil {
			return err
		}
	}
	return nil
}
