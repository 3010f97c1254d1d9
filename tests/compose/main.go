// Prints a Compose file as Docker's loader resolves it, as JSON: go run . FILE PROFILE...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	text, err := resolve(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(text))
}

func resolve(file string, profiles []string) ([]byte, error) {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithProfiles(profiles))
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	return project.MarshalJSON()
}
