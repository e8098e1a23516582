// A provider for tests: its objects are files, and every call of it that changes anything leaves a line.
//
// An object is a file `NAME.RANDOM` in the folder of its resource, with its arguments as JSON. `calls.log` in that folder
// has a line `create NAME.RANDOM` (or update, delete) per call. `secret_wo` is write-only. Files in the folder make calls fail or wait:
// `NAME.refuse-create` and `NAME.refuse-delete`, `NAME.hold` while it is there, and `slow` for as many milliseconds as it
// says. The token `expired` is refused, and `expires-with:FILE` as soon as that file is there.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	providerschema "github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func main() {
	address := "registry.terraform.io/konverge/trace"
	if err := providerserver.Serve(context.Background(), newProvider, providerserver.ServeOpts{Address: address}); err != nil {
		log.Fatal(err)
	}
}

func newProvider() provider.Provider { return &traceProvider{} }

type traceProvider struct{}

// What the resources get of a provider's configuration.
type settings struct{ token string }

type providerModel struct {
	Token types.String `tfsdk:"token"`
}

func (*traceProvider) Metadata(_ context.Context, _ provider.MetadataRequest, answer *provider.MetadataResponse) {
	answer.TypeName = "trace"
}

func (*traceProvider) Schema(_ context.Context, _ provider.SchemaRequest, answer *provider.SchemaResponse) {
	answer.Schema = providerschema.Schema{Attributes: map[string]providerschema.Attribute{
		"token": providerschema.StringAttribute{Optional: true},
	}}
}

func (*traceProvider) Configure(ctx context.Context, request provider.ConfigureRequest, answer *provider.ConfigureResponse) {
	var config providerModel
	answer.Diagnostics.Append(request.Config.Get(ctx, &config)...)
	token := config.Token.ValueString()
	expiry, isLimited := strings.CutPrefix(token, "expires-with:")
	if token == "expired" || (isLimited && exists(expiry)) {
		answer.Diagnostics.AddError("validating provider credentials",
			"api error ExpiredToken: The security token included in the request is expired")
	}
	answer.ResourceData = settings{token}
}

func (*traceProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (*traceProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &object{} }}
}

type object struct{ settings settings }

func (o *object) Configure(_ context.Context, request resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	if given, is := request.ProviderData.(settings); is {
		o.settings = given
	}
}

type rule struct {
	Port types.Int64  `tfsdk:"port"`
	From types.String `tfsdk:"from"`
}

type model struct {
	ID       types.String `tfsdk:"id"`
	Revision types.String `tfsdk:"revision"`
	Folder   types.String `tfsdk:"folder"`
	Name     types.String `tfsdk:"name"`
	Value    types.String `tfsdk:"value"`
	Tags     types.List   `tfsdk:"tags"`
	Key      types.String `tfsdk:"key"`
	Secret   types.String `tfsdk:"secret_wo"`
	Version  types.String `tfsdk:"secret_wo_version"`
	Rule     []rule       `tfsdk:"rule"`
}

func (*object) Metadata(_ context.Context, _ resource.MetadataRequest, answer *resource.MetadataResponse) {
	answer.TypeName = "trace_object"
}

func (*object) Schema(_ context.Context, _ resource.SchemaRequest, answer *resource.SchemaResponse) {
	replaces := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	answer.Schema = schema.Schema{
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed:      true,
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"revision": schema.StringAttribute{Computed: true},
			"folder":   schema.StringAttribute{Required: true, PlanModifiers: replaces},
			"name":     schema.StringAttribute{Required: true, PlanModifiers: replaces},
			"value":    schema.StringAttribute{Optional: true},
			"tags":     schema.ListAttribute{Optional: true, ElementType: types.StringType},
			// Terraform keeps the first of them in its state, and never the second.
			"key":               schema.StringAttribute{Optional: true, Sensitive: true},
			"secret_wo":         schema.StringAttribute{Optional: true, WriteOnly: true},
			"secret_wo_version": schema.StringAttribute{Optional: true},
		},
		Blocks: map[string]schema.Block{
			"rule": schema.ListNestedBlock{NestedObject: schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
				"port": schema.Int64Attribute{Required: true},
				"from": schema.StringAttribute{Optional: true},
			}}},
		},
	}
}

// What the file of an object holds.
type content struct {
	Revision string
	Value    *string
	Tags     []string
	Rules    []contentRule
	Key      *string `json:",omitempty"`
	Secret   *string `json:",omitempty"`
	Version  *string `json:",omitempty"`
	// The token of the provider that wrote it.
	Token string `json:",omitempty"`
}

type contentRule struct {
	Port int64
	From *string
}

func random() string {
	bytes := make([]byte, 6)
	if _, err := rand.Read(bytes); err != nil {
		log.Fatal(err)
	}
	return hex.EncodeToString(bytes)
}

func trace(call, id string) error {
	file, err := os.OpenFile(filepath.Join(filepath.Dir(id), "calls.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintf(file, "%s %s\n", call, filepath.Base(id))
	return err
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func (m *model) beside(suffix string) string {
	return filepath.Join(m.Folder.ValueString(), m.Name.ValueString()+suffix)
}

func (m *model) wait() {
	if text, err := os.ReadFile(filepath.Join(m.Folder.ValueString(), "slow")); err == nil {
		if milliseconds, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			time.Sleep(time.Duration(milliseconds) * time.Millisecond)
		}
	}
	for exists(m.beside(".hold")) {
		time.Sleep(5 * time.Millisecond)
	}
}

// The secret is in the configuration alone.
func (o *object) write(ctx context.Context, m *model, config tfsdk.Config) error {
	var secret types.String
	if config.GetAttribute(ctx, path.Root("secret_wo"), &secret).HasError() {
		return errors.New("the secret is not readable")
	}
	written := content{
		Revision: m.Revision.ValueString(), Value: m.Value.ValueStringPointer(),
		Key: m.Key.ValueStringPointer(), Secret: secret.ValueStringPointer(), Version: m.Version.ValueStringPointer(),
		Token: o.settings.token,
	}
	if !m.Tags.IsNull() {
		m.Tags.ElementsAs(ctx, &written.Tags, false)
	}
	for _, rule := range m.Rule {
		written.Rules = append(written.Rules, contentRule{rule.Port.ValueInt64(), rule.From.ValueStringPointer()})
	}
	text, err := json.Marshal(written)
	if err != nil {
		return err
	}
	return os.WriteFile(m.ID.ValueString(), text, 0o600)
}

func (o *object) Create(ctx context.Context, request resource.CreateRequest, answer *resource.CreateResponse) {
	var plan model
	answer.Diagnostics.Append(request.Plan.Get(ctx, &plan)...)
	if answer.Diagnostics.HasError() {
		return
	}
	if exists(plan.beside(".refuse-create")) {
		answer.Diagnostics.AddError("creating the object", "api error InstanceQuotaExceeded: it is one too many")
		return
	}
	plan.ID = types.StringValue(plan.beside("." + random()))
	plan.Revision = types.StringValue(random())
	if err := errors.Join(trace("create", plan.ID.ValueString()), o.write(ctx, &plan, request.Config)); err != nil {
		answer.Diagnostics.AddError("creating the object", err.Error())
		return
	}
	plan.wait()
	answer.Diagnostics.Append(answer.State.Set(ctx, &plan)...)
}

func (*object) Read(ctx context.Context, request resource.ReadRequest, answer *resource.ReadResponse) {
	var state model
	answer.Diagnostics.Append(request.State.Get(ctx, &state)...)
	if answer.Diagnostics.HasError() {
		return
	}
	text, err := os.ReadFile(state.ID.ValueString())
	if errors.Is(err, os.ErrNotExist) {
		answer.State.RemoveResource(ctx)
		return
	}
	var found content
	if err = errors.Join(err, json.Unmarshal(text, &found)); err != nil {
		answer.Diagnostics.AddError("reading the object", err.Error())
		return
	}
	base := filepath.Base(state.ID.ValueString())
	state.Folder = types.StringValue(filepath.Dir(state.ID.ValueString()))
	state.Name = types.StringValue(base[:strings.LastIndex(base, ".")])
	state.Revision = types.StringValue(found.Revision)
	state.Value = types.StringPointerValue(found.Value)
	state.Key = types.StringPointerValue(found.Key)
	state.Version = types.StringPointerValue(found.Version)
	state.Tags = types.ListNull(types.StringType)
	if found.Tags != nil {
		tags, problems := types.ListValueFrom(ctx, types.StringType, found.Tags)
		answer.Diagnostics.Append(problems...)
		state.Tags = tags
	}
	state.Rule = nil
	for _, one := range found.Rules {
		state.Rule = append(state.Rule, rule{types.Int64Value(one.Port), types.StringPointerValue(one.From)})
	}
	answer.Diagnostics.Append(answer.State.Set(ctx, &state)...)
}

func (o *object) Update(ctx context.Context, request resource.UpdateRequest, answer *resource.UpdateResponse) {
	var plan model
	answer.Diagnostics.Append(request.Plan.Get(ctx, &plan)...)
	if answer.Diagnostics.HasError() {
		return
	}
	plan.Revision = types.StringValue(random())
	if err := errors.Join(trace("update", plan.ID.ValueString()), o.write(ctx, &plan, request.Config)); err != nil {
		answer.Diagnostics.AddError("updating the object", err.Error())
		return
	}
	plan.wait()
	answer.Diagnostics.Append(answer.State.Set(ctx, &plan)...)
}

func (*object) Delete(ctx context.Context, request resource.DeleteRequest, answer *resource.DeleteResponse) {
	var state model
	answer.Diagnostics.Append(request.State.Get(ctx, &state)...)
	if answer.Diagnostics.HasError() {
		return
	}
	if exists(state.beside(".refuse-delete")) {
		answer.Diagnostics.AddError("deleting the object", "api error DependencyViolation: it is still in use")
		return
	}
	state.wait()
	if err := errors.Join(trace("delete", state.ID.ValueString()), os.Remove(state.ID.ValueString())); err != nil {
		answer.Diagnostics.AddError("deleting the object", err.Error())
	}
}

func (*object) ImportState(ctx context.Context, request resource.ImportStateRequest, answer *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("id"), request, answer)
}
