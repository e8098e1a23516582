// A provider for tests: it serves the schemas of other providers, as `konverge models record` wrote them.
//
// The record is the file `schema.json` beside the executable. So Terraform itself validates and plans resources that are
// shaped like those of a cloud, and no cloud is reached. What a cloud would decide is unknown in the plan. An apply gives
// such a text the value `TYPE.ATTRIBUTE`, a number 0, a switch false, and a collection no items.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
)

func main() {
	executable, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	address, schemas, err := readRecord(filepath.Join(filepath.Dir(executable), "schema.json"))
	if err != nil {
		log.Fatal(err)
	}
	server := func() tfprotov6.ProviderServer { return &recordProvider{schemas: schemas} }
	if err := tf6server.Serve(address, server); err != nil {
		log.Fatal(err)
	}
}

// What `terraform providers schema -json` prints, as far as it is recorded.
type record struct {
	Recorded struct {
		Address string `json:"address"`
	} `json:"recorded"`
	Schemas map[string]struct {
		Resources map[string]struct {
			Version int64       `json:"version"`
			Block   recordBlock `json:"block"`
		} `json:"resource_schemas"`
	} `json:"provider_schemas"`
}

func readRecord(path string) (string, map[string]*tfprotov6.Schema, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	var read record
	if err := json.Unmarshal(bytes, &read); err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	address := read.Recorded.Address
	schemas := map[string]*tfprotov6.Schema{}
	for name, one := range read.Schemas[address].Resources {
		block, err := one.Block.schema()
		if err != nil {
			return "", nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		schemas[name] = &tfprotov6.Schema{Version: one.Version, Block: block}
	}
	if len(schemas) == 0 {
		return "", nil, fmt.Errorf("%s has no resources of %q", path, address)
	}
	return address, schemas, nil
}

// The methods that Terraform calls only for what this provider does not have are those of the nil interface.
type recordProvider struct {
	tfprotov6.ProviderServer
	schemas map[string]*tfprotov6.Schema
}

func (p *recordProvider) GetMetadata(context.Context, *tfprotov6.GetMetadataRequest) (*tfprotov6.GetMetadataResponse, error) {
	answer := &tfprotov6.GetMetadataResponse{ServerCapabilities: &tfprotov6.ServerCapabilities{}}
	for name := range p.schemas {
		answer.Resources = append(answer.Resources, tfprotov6.ResourceMetadata{TypeName: name})
	}
	return answer, nil
}

// The configuration of a provider is not recorded: it takes a region.
func (p *recordProvider) GetProviderSchema(context.Context, *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	region := recordBlock{Attributes: map[string]recordAttribute{"region": {Type: json.RawMessage(`"string"`), Optional: true}}}
	block, err := region.schema()
	return &tfprotov6.GetProviderSchemaResponse{
		Provider:        &tfprotov6.Schema{Block: block},
		ResourceSchemas: p.schemas,
	}, err
}

func (p *recordProvider) GetResourceIdentitySchemas(context.Context, *tfprotov6.GetResourceIdentitySchemasRequest) (*tfprotov6.GetResourceIdentitySchemasResponse, error) {
	return &tfprotov6.GetResourceIdentitySchemasResponse{}, nil
}

func (p *recordProvider) ValidateProviderConfig(_ context.Context, request *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return &tfprotov6.ValidateProviderConfigResponse{PreparedConfig: request.Config}, nil
}

func (p *recordProvider) ConfigureProvider(context.Context, *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	return &tfprotov6.ConfigureProviderResponse{}, nil
}

func (p *recordProvider) StopProvider(context.Context, *tfprotov6.StopProviderRequest) (*tfprotov6.StopProviderResponse, error) {
	return &tfprotov6.StopProviderResponse{}, nil
}

// Terraform itself has compared the configuration with the schema before it asks.
func (p *recordProvider) ValidateResourceConfig(context.Context, *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return &tfprotov6.ValidateResourceConfigResponse{}, nil
}

func (p *recordProvider) UpgradeResourceState(_ context.Context, request *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	kind := p.schemas[request.TypeName].ValueType()
	value, err := request.RawState.Unmarshal(kind)
	if err != nil {
		return nil, err
	}
	state, err := tfprotov6.NewDynamicValue(kind, value)
	return &tfprotov6.UpgradeResourceStateResponse{UpgradedState: &state}, err
}

// Nothing changes what was applied.
func (p *recordProvider) ReadResource(_ context.Context, request *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return &tfprotov6.ReadResourceResponse{NewState: request.CurrentState}, nil
}

func (p *recordProvider) PlanResourceChange(_ context.Context, request *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	schema := p.schemas[request.TypeName]
	prior, err := request.PriorState.IsNull()
	if err != nil {
		return nil, err
	}
	if !prior {
		// An update keeps what the cloud decided before.
		return &tfprotov6.PlanResourceChangeResponse{PlannedState: request.ProposedNewState}, nil
	}
	planned, err := rewrite(schema, request.ProposedNewState, unknownIfComputed)
	return &tfprotov6.PlanResourceChangeResponse{PlannedState: planned}, err
}

func (p *recordProvider) ApplyResourceChange(_ context.Context, request *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	applied, err := rewrite(p.schemas[request.TypeName], request.PlannedState, decided(request.TypeName))
	return &tfprotov6.ApplyResourceChangeResponse{NewState: applied}, err
}
