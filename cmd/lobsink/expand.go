package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// variableName is what a shell takes for the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand puts the environment into one value of the configuration file: ${NAME},
// and ${NAME:-DEFAULT} for when NAME is not set or empty. $${ stands for ${, and
// any other dollar for itself: names and passwords of databases have them. The
// file is parsed before, so that no variable can add a key.
func expand(text string, env map[string]string) (string, error) {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if escaped, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(escaped + "${")
			text = after
			continue
		}
		inner, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", errors.New("after ${ a } is missing; write ${NAME} or ${NAME:-DEFAULT}, and $${ for ${ itself")
		}
		name, fallback, hasFallback := strings.Cut(inner, ":-")
		if !variableName.MatchString(name) {
			return "", errors.New("between ${ and } there is no name of a variable; write ${NAME} or ${NAME:-DEFAULT}, and $${ for ${ itself")
		}
		value := env[name]
		switch {
		case value != "":
		case hasFallback:
			value = fallback
		default: // also when it is empty, as for the variables of settings
			return "", fmt.Errorf("%s is not set in the environment; set it, or write ${%s:-DEFAULT}", name, name)
		}
		out.WriteString(before + value)
		text = rest
	}
}
