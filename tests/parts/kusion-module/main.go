// A Kusion module on the real go-plugin library, as the published ones are: the handshake, the service
// `/Module/Generate` without a package, answers written by yaml.v3 from Kubernetes' own types. What the developer
// gives as `mode` says how it behaves.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sort"
	"strings"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"gopkg.in/yaml.v3"
	v1 "k8s.io/api/core/v1"
)

var handshake = plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "MODULE_PLUGIN", MagicCookieValue: "ON"}

// The messages of the protocol. The file has no package.
func messages() (request, response protoreflect.MessageDescriptor) {
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(number), Type: kind.Enum(), Label: label.Enum()}
	}
	const (
		text     = descriptorpb.FieldDescriptorProto_TYPE_STRING
		bytes    = descriptorpb.FieldDescriptorProto_TYPE_BYTES
		one      = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		repeated = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	)
	file := &descriptorpb.FileDescriptorProto{
		Name:   proto.String("module.proto"),
		Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("GeneratorRequest"), Field: []*descriptorpb.FieldDescriptorProto{
				field("project", 1, text, one), field("stack", 2, text, one), field("app", 3, text, one),
				field("workload", 4, bytes, one), field("dev_config", 5, bytes, one),
				field("platform_config", 6, bytes, one), field("context", 7, bytes, one),
				field("secret_store", 8, bytes, one),
			}},
			{Name: proto.String("GeneratorResponse"), Field: []*descriptorpb.FieldDescriptorProto{
				// As in Kusion 0.11, to have both forms of the second field.
				field("resources", 1, bytes, repeated), field("patchers", 2, bytes, repeated),
			}},
		},
	}
	made, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return made.Messages().Get(0), made.Messages().Get(1)
}

type resource struct {
	ID         string         `yaml:"id"`
	Type       string         `yaml:"type"`
	Attributes map[string]any `yaml:"attributes,omitempty"`
	DependsOn  []string       `yaml:"dependsOn,omitempty"`
	Extensions map[string]any `yaml:"extensions,omitempty"`
}

type jsonPatcher struct {
	Type    string `yaml:"type"`
	Payload []byte `yaml:"payload"`
}

type patcher struct {
	Environments []v1.EnvVar            `yaml:"environments,omitempty"`
	Labels       map[string]string      `yaml:"labels,omitempty"`
	PodLabels    map[string]string      `yaml:"podLabels,omitempty"`
	JSONPatchers map[string]jsonPatcher `yaml:"jsonPatcher,omitempty"`
}

type asked struct {
	project, stack, app                         string
	workload, dev, platform, context, moduleTag string
}

// The name of a module process and what it was given, so that a test sees both.
func generate(ask asked) ([]any, []any, error) {
	dev := map[string]any{}
	if err := yaml.Unmarshal([]byte(ask.dev), &dev); err != nil {
		return nil, nil, err
	}
	data := map[string]any{"platform": ask.platform, "context": ask.context, "module": ask.moduleTag}
	mode, _ := dev["mode"].(string)
	switch mode {
	case "panic":
		panic("the module has a defect")
	case "exit":
		os.Exit(3)
	case "error":
		return nil, nil, status.Error(codes.InvalidArgument, "size: 100% of \"größe\"\nis too much")
	case "hang":
		select {}
	case "huge":
		data["huge"] = strings.Repeat("x", 200<<20)
	case "memory":
		kept := [][]byte{}
		for {
			part := make([]byte, 64<<20)
			for at := range part {
				part[at] = 1
			}
			kept = append(kept, part)
		}
	case "talk":
		for range 20000 {
			fmt.Println("the module says something that nobody reads, again and again")
		}
	case "not-yaml":
		return []any{[]byte("a: [")}, nil, nil
	case "empty":
		return nil, nil, nil
	case "look":
		names := os.Environ()
		sort.Strings(names)
		data["environment"] = strings.Join(names, "\n")
		attempt := func(name string, err error) { data[name] = err == nil }
		_, err := os.ReadFile("/etc/passwd")
		attempt("passwd", err)
		_, err = os.ReadFile("main.k")
		attempt("own-file", err)
		attempt("write-stack", os.WriteFile("left-behind", nil, 0o600))
		attempt("write-home", os.WriteFile("/tmp/konverge-module-was-here", nil, 0o600))
		_, err = net.Dial("tcp", "127.0.0.1:1")
		data["network"] = "reached"
		if errors.Is(err, os.ErrPermission) {
			data["network"] = "denied"
		}
		_, err = net.Dial("unix", "/nowhere")
		data["socket"] = "reached"
		if errors.Is(err, os.ErrPermission) {
			data["socket"] = "denied"
		}
		attempt("process", exec.Command("/bin/true").Run())
	}
	id := fmt.Sprintf("v1:ConfigMap:%s:%s-hello", ask.project, ask.app)
	for name, value := range data {
		if flag, ok := value.(bool); ok {
			data[name] = fmt.Sprint(flag)
		}
	}
	made := resource{
		ID: id, Type: "Kubernetes",
		Attributes: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": data,
			"metadata": map[string]any{"name": ask.app + "-hello", "namespace": ask.project, "creationTimestamp": nil},
		},
		Extensions: map[string]any{"GVK": "/v1, Kind=ConfigMap"},
	}
	text, err := yaml.Marshal(made)
	if err != nil || mode == "no-patch" {
		return []any{text}, nil, err
	}
	replaced, _ := json.Marshal([]map[string]any{{"op": "add", "path": "/data/patched", "value": "yes"}})
	patch := patcher{
		Environments: []v1.EnvVar{
			{Name: "HELLO", Value: "world"},
			{Name: "HELLO_PASSWORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "hello"}, Key: "password",
			}}},
		},
		Labels: map[string]string{"hello": "yes"}, PodLabels: map[string]string{"pod": "yes"},
		JSONPatchers: map[string]jsonPatcher{
			id: {Type: "JSONPatch", Payload: replaced},
			fmt.Sprintf("apps/v1:Deployment:%s:%s-%s-%s", ask.project, ask.project, ask.stack, ask.app): {
				Type: "MergePatch", Payload: []byte(`{"spec":{"replicas":2}}`),
			},
		},
	}
	patchText, err := yaml.Marshal(patch)
	return []any{text}, []any{patchText}, err
}

type served struct{ plugin.Plugin }

func (served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a module is no client")
}

func (served) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	request, response := messages()
	handle := func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		got := dynamicpb.NewMessage(request)
		if err := decode(got); err != nil {
			return nil, err
		}
		field := func(name protoreflect.Name) protoreflect.Value { return got.Get(request.Fields().ByName(name)) }
		text := func(name protoreflect.Name) string { return string(field(name).Bytes()) }
		incoming, _ := metadata.FromIncomingContext(ctx)
		resources, patchers, err := generate(asked{
			project: field("project").String(), stack: field("stack").String(), app: field("app").String(),
			workload: text("workload"), dev: text("dev_config"), platform: text("platform_config"),
			context: text("context"), moduleTag: strings.Join(incoming.Get("kusion_module_name"), ","),
		})
		if err != nil {
			return nil, err
		}
		answer := dynamicpb.NewMessage(response)
		for name, values := range map[protoreflect.Name][]any{"resources": resources, "patchers": patchers} {
			list := answer.Mutable(response.Fields().ByName(name)).List()
			for _, value := range values {
				list.Append(protoreflect.ValueOfBytes(value.([]byte)))
			}
		}
		return answer, nil
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "Module", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Generate", Handler: handle}},
	}, served{})
	return nil
}

func main() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: handshake,
		Plugins:         plugin.PluginSet{"module": served{}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return plugin.DefaultGRPCServer(append(options, grpc.MaxSendMsgSize(1<<30)))
		},
	})
}
