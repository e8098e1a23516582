package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

type recordAttribute struct {
	Type       json.RawMessage `json:"type"`
	Required   bool            `json:"required"`
	Optional   bool            `json:"optional"`
	Computed   bool            `json:"computed"`
	Sensitive  bool            `json:"sensitive"`
	WriteOnly  bool            `json:"write_only"`
	Deprecated bool            `json:"deprecated"`
}

type recordNested struct {
	Nesting string      `json:"nesting_mode"`
	Block   recordBlock `json:"block"`
	Min     int64       `json:"min_items"`
	Max     int64       `json:"max_items"`
}

type recordBlock struct {
	Attributes map[string]recordAttribute `json:"attributes"`
	Blocks     map[string]recordNested    `json:"block_types"`
}

var nestings = map[string]tfprotov6.SchemaNestedBlockNestingMode{
	"single": tfprotov6.SchemaNestedBlockNestingModeSingle,
	"list":   tfprotov6.SchemaNestedBlockNestingModeList,
	"set":    tfprotov6.SchemaNestedBlockNestingModeSet,
	"map":    tfprotov6.SchemaNestedBlockNestingModeMap,
	"group":  tfprotov6.SchemaNestedBlockNestingModeGroup,
}

func (b recordBlock) schema() (*tfprotov6.SchemaBlock, error) {
	block := &tfprotov6.SchemaBlock{}
	for _, name := range slices.Sorted(maps.Keys(b.Attributes)) {
		one := b.Attributes[name]
		kind, err := tftypes.ParseJSONType(one.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		block.Attributes = append(block.Attributes, &tfprotov6.SchemaAttribute{
			Name: name, Type: kind, Required: one.Required, Optional: one.Optional, Computed: one.Computed,
			Sensitive: one.Sensitive, WriteOnly: one.WriteOnly, Deprecated: one.Deprecated,
		})
	}
	for _, name := range slices.Sorted(maps.Keys(b.Blocks)) {
		one := b.Blocks[name]
		nested, err := one.Block.schema()
		if err != nil {
			return nil, fmt.Errorf("%s.%w", name, err)
		}
		nesting, is := nestings[one.Nesting]
		if !is {
			return nil, fmt.Errorf("%s: the nesting mode %q is not known", name, one.Nesting)
		}
		block.BlockTypes = append(block.BlockTypes, &tfprotov6.SchemaNestedBlock{
			TypeName: name, Block: nested, Nesting: nesting, MinItems: one.Min, MaxItems: one.Max,
		})
	}
	return block, nil
}

// What becomes of the value of an attribute.
type rule func(*tfprotov6.SchemaAttribute, tftypes.Value) tftypes.Value

// Of a new object the cloud decides what the configuration leaves open.
func unknownIfComputed(attribute *tfprotov6.SchemaAttribute, value tftypes.Value) tftypes.Value {
	if attribute.Computed && value.IsNull() {
		return tftypes.NewValue(attribute.Type, tftypes.UnknownValue)
	}
	return value
}

// The decisions of a cloud that is not there.
func decided(resource string) rule {
	return func(attribute *tfprotov6.SchemaAttribute, value tftypes.Value) tftypes.Value {
		if attribute.WriteOnly {
			return tftypes.NewValue(attribute.Type, nil)
		}
		if value.IsKnown() {
			return value
		}
		kind := attribute.Type
		switch {
		case kind.Is(tftypes.String):
			return tftypes.NewValue(kind, resource+"."+attribute.Name)
		case kind.Is(tftypes.Number):
			return tftypes.NewValue(kind, 0)
		case kind.Is(tftypes.Bool):
			return tftypes.NewValue(kind, false)
		case kind.Is(tftypes.Map{}):
			return tftypes.NewValue(kind, map[string]tftypes.Value{})
		case kind.Is(tftypes.List{}), kind.Is(tftypes.Set{}):
			return tftypes.NewValue(kind, []tftypes.Value{})
		}
		return tftypes.NewValue(kind, nil)
	}
}

// Applies a rule to every attribute of an object, also inside of blocks.
func rewrite(schema *tfprotov6.Schema, given *tfprotov6.DynamicValue, apply rule) (*tfprotov6.DynamicValue, error) {
	kind := schema.ValueType()
	value, err := given.Unmarshal(kind)
	if err != nil || value.IsNull() {
		return given, err
	}
	if value, err = rewriteBlock(schema.Block, value, apply); err != nil {
		return nil, err
	}
	made, err := tfprotov6.NewDynamicValue(kind, value)
	return &made, err
}

func rewriteBlock(block *tfprotov6.SchemaBlock, value tftypes.Value, apply rule) (tftypes.Value, error) {
	if value.IsNull() || !value.IsKnown() {
		return value, nil
	}
	var fields map[string]tftypes.Value
	if err := value.As(&fields); err != nil {
		return value, err
	}
	for _, one := range block.Attributes {
		fields[one.Name] = apply(one, fields[one.Name])
	}
	for _, one := range block.BlockTypes {
		inside := fields[one.TypeName]
		if inside.IsNull() || !inside.IsKnown() {
			continue
		}
		if inside.Type().Is(tftypes.Object{}) {
			made, err := rewriteBlock(one.Block, inside, apply)
			if err != nil {
				return value, err
			}
			fields[one.TypeName] = made
			continue
		}
		var items []tftypes.Value
		if err := inside.As(&items); err != nil {
			return value, err
		}
		for at, item := range items {
			made, err := rewriteBlock(one.Block, item, apply)
			if err != nil {
				return value, err
			}
			items[at] = made
		}
		fields[one.TypeName] = tftypes.NewValue(inside.Type(), items)
	}
	return tftypes.NewValue(value.Type(), fields), nil
}
