package deploytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// panelTypes are the panels that the dashboards use.
var panelTypes = map[string]variants.PanelcfgConfig{
	"stat":       stat.VariantConfig(),
	"timeseries": timeseries.VariantConfig(),
}

// panel is what the strict decoding of a dashboard passes over: it leaves a
// panel's field configuration alone, and a query whose data source it does not
// find out.
type panel struct {
	Type        string
	Title       string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig json.RawMessage
	Options     json.RawMessage
	Targets     []json.RawMessage
}

// checkDashboard decodes a dashboard strictly with Grafana's own types, has
// promtool read its expressions, and looks for panels in each other's way.
func checkDashboard(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	runtime := cog.NewRuntime()
	for _, config := range panelTypes {
		runtime.RegisterPanelcfgVariant(config)
	}
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	if err := strict(new(dashboard.Dashboard).UnmarshalJSONStrict(content)); err != nil {
		return err
	}
	var d struct {
		UID, Title string
		Panels     []panel
	}
	if err := json.Unmarshal(content, &d); err != nil {
		return err
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
		return errors.New("a dashboard has a uid, a title and panels")
	}
	var exprs []string
	taken := map[[2]int]string{}
	for i := range d.Panels {
		p := &d.Panels[i]
		if err := p.place(taken); err != nil {
			return err
		}
		if p.Type == "row" {
			continue
		}
		found, err := p.check()
		if err != nil {
			return fmt.Errorf("panel %q: %w", p.Title, err)
		}
		exprs = append(exprs, found...)
	}
	return checkExpressions(exprs)
}

// strict returns an error of the generated code, which answers with an empty list
// of errors when there are none.
func strict(err error) error {
	if err != nil && err.Error() == "" {
		return nil
	}
	return err
}

// place takes a panel's place on the dashboard.
func (p *panel) place(taken map[[2]int]string) error {
	at := p.GridPos
	if at.W < 1 || at.H < 1 || at.X+at.W > 24 {
		return fmt.Errorf("panel %q has no place: %+v", p.Title, at)
	}
	for x := at.X; x < at.X+at.W; x++ {
		for y := at.Y; y < at.Y+at.H; y++ {
			if other := taken[[2]int{x, y}]; other != "" {
				return fmt.Errorf("panels %q and %q are in the same place", other, p.Title)
			}
			taken[[2]int{x, y}] = p.Title
		}
	}
	return nil
}

// check decodes what belongs to the panel's type and to its queries, and returns
// their expressions.
func (p *panel) check() (exprs []string, err error) {
	config, ok := panelTypes[p.Type]
	if !ok {
		return nil, fmt.Errorf("nothing is known about panels of type %q", p.Type)
	}
	if p.Title == "" || len(p.Targets) == 0 {
		return nil, errors.New("a panel has a title and a query")
	}
	if _, err := config.StrictOptionsUnmarshaler(p.Options); strict(err) != nil {
		return nil, err
	}
	if err := strict(new(dashboard.FieldConfigSource).UnmarshalJSONStrict(p.FieldConfig)); err != nil {
		return nil, err
	}
	var fields struct {
		Defaults struct{ Custom json.RawMessage }
	}
	if err := json.Unmarshal(p.FieldConfig, &fields); err != nil {
		return nil, err
	}
	if custom := fields.Defaults.Custom; config.StrictFieldConfigUnmarshaler != nil {
		if _, err := config.StrictFieldConfigUnmarshaler(custom); strict(err) != nil {
			return nil, err
		}
	} else if custom != nil {
		return nil, fmt.Errorf("a %s panel has no fields of its own", p.Type)
	}
	for _, target := range p.Targets {
		var query prometheus.Dataquery
		if err := strict(query.UnmarshalJSONStrict(target)); err != nil {
			return nil, err
		}
		var source struct{ Datasource json.RawMessage }
		if err := json.Unmarshal(target, &source); err != nil {
			return nil, err
		}
		if err := strict(new(common.DataSourceRef).UnmarshalJSONStrict(source.Datasource)); err != nil {
			return nil, err
		}
		exprs = append(exprs, query.Expr)
	}
	return exprs, nil
}

// checkExpressions has promtool parse expressions, as the rules of a file.
func checkExpressions(exprs []string) error {
	dir, err := os.MkdirTemp("", "expressions")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := strings.Builder{}
	file.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	variables := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")
	for i, expr := range exprs {
		fmt.Fprintf(&file, "      - {record: 'panel:%d', expr: %q}\n", i, variables.Replace(expr))
	}
	if err := os.WriteFile(dir+"/rules.yaml", []byte(file.String()), 0o600); err != nil {
		return err
	}
	return promtool(dir, "check", "rules", "--lint=none", "rules.yaml")
}
