package deploytest

import (
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// misspelt returns a word that is nearly the same.
func misspelt(word string) string {
	if len(word) > 3 {
		return word[:len(word)-1]
	}
	return word + "x"
}

// below stands between the keys of a path.
const below = " > "

// misspellKeys returns copies of a YAML or JSON text with one key misspelt. Keys
// at the same place of several list items or documents count as one.
func misspellKeys(content string) (map[string]string, error) {
	copies := map[string]string{}
	lines := strings.SplitAfter(content, "\n")
	var walk func(path string, n *yaml.Node) error
	walk = func(path string, n *yaml.Node) error {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i < len(n.Content); i += 2 {
				key, value := n.Content[i], n.Content[i+1]
				if key.Tag == "!!merge" {
					continue // what is merged is walked where it stands
				}
				at := strings.TrimPrefix(path+below+key.Value, below)
				if _, ok := copies[at]; !ok {
					broken, err := replaceAt(lines, key.Line-1, key.Column-1, key.Value)
					if err != nil {
						return err
					}
					copies[at] = broken
				}
				if err := walk(at, value); err != nil {
					return err
				}
			}
		case yaml.SequenceNode, yaml.DocumentNode:
			for _, item := range n.Content {
				if err := walk(path, item); err != nil {
					return err
				}
			}
		}
		return nil
	}
	dec := yaml.NewDecoder(strings.NewReader(content))
	for {
		var doc yaml.Node
		switch err := dec.Decode(&doc); err {
		case nil:
		case io.EOF:
			return copies, nil
		default:
			return nil, err
		}
		if err := walk("", &doc); err != nil {
			return nil, err
		}
	}
}

// replaceAt misspells the word that stands at a line and column, in quotes or
// not.
func replaceAt(lines []string, line, column int, word string) (string, error) {
	text := lines[line]
	if strings.HasPrefix(text[column:], `"`) {
		column++
	}
	if !strings.HasPrefix(text[column:], word) {
		return "", fmt.Errorf("line %d: no %q at column %d", line+1, word, column+1)
	}
	changed := append([]string(nil), lines...)
	changed[line] = text[:column] + misspelt(word) + text[column+len(word):]
	return strings.Join(changed, ""), nil
}

// misspellLines returns copies with one line misspelt, comments apart.
func misspellLines(content string) (map[string]string, error) {
	return misspellWords(content, func(line string) string { return strings.TrimSpace(line) })
}

// misspellWords returns copies in which the word that find finds in a line is
// misspelt.
func misspellWords(content string, find func(line string) string) (map[string]string, error) {
	copies := map[string]string{}
	lines := strings.SplitAfter(content, "\n")
	for i, line := range lines {
		word := find(line)
		if word == "" || strings.HasPrefix(line, "#") {
			continue
		}
		broken, err := replaceAt(lines, i, strings.Index(line, word), word)
		if err != nil {
			return nil, err
		}
		copies[fmt.Sprintf("line %d, %s", i+1, word)] = broken
	}
	return copies, nil
}
