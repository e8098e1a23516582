//! Validates Kubernetes objects against schemas, to find unknown fields and wrong types before a request is sent to any
//! server.
//!
//! There are two sources: [`kubernetes.json`](self), which `scripts/kubernetes-schemas` extracts from the
//! OpenAPI description of Kubernetes, and the CustomResourceDefinitions of the repository ([`CrdSchemas`]).
//! Only clear violations are reported: names, types, required fields, enums and bounds. Defaults, patterns
//! and CEL rules are left to the API server, to which the preview sends a dry run.

mod built_in;
mod crd_schemas;
mod schema_check;
mod validate;

pub use self::{
    built_in::BuiltIn,
    crd_schemas::CrdSchemas,
    schema_check::{SchemaFit, fit},
    validate::Violation,
};

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use konverge_base::yaml;

    fn object(text: &str) -> Map<String, Value> {
        yaml::from_str(text).unwrap()
    }

    /// The violations, as `path: message`.
    fn faults(text: &str, definitions: &[&CrdSchemas]) -> Vec<String> {
        let (SchemaFit::Defined(faults) | SchemaFit::BuiltIn(faults)) =
            fit(&object(text), definitions, &BuiltIn::new())
        else {
            return vec!["no schema".to_owned()];
        };
        let said = faults
            .into_iter()
            .map(|fault| format!("{}: {}", fault.path, fault.message));
        said.collect()
    }

    const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {a.b/c: x}}
spec:
  replicas: 2.0
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}
  template:
    metadata: {labels: {app: web}, creationTimestamp: null}
    spec:
      containers:
      - name: web
        image: web:1
        ports: [{containerPort: 80}]
        resources: {limits: {cpu: 1, memory: 1Gi}}
        livenessProbe: {httpGet: {path: /, port: http}}
status: {whatever: the server says}
";

    #[test]
    fn an_object_that_fits_is_fine() {
        assert_eq!(faults(DEPLOYMENT, &[]), Vec::<String>::new());
    }

    #[test]
    fn every_fault_has_its_path() {
        for (from, to, expected) in [
            (
                "replicas: 2.0",
                "replica: 2",
                "spec.replica: is not a field of this kind; did you mean `replicas`?",
            ),
            (
                "replicas: 2.0",
                "replicas: '2'",
                "spec.replicas: must be integer, is string",
            ),
            (
                "replicas: 2.0",
                "replicas: 2.5",
                "spec.replicas: must be integer, is number",
            ),
            (
                "replicas: 2.0",
                "replicas: 3000000000",
                "spec.replicas: must be at most 2147483647",
            ),
            (
                "containerPort: 80",
                "containerPort: http",
                "spec.template.spec.containers[0].ports[0].containerPort: must be integer, is string",
            ),
            (
                "- name: web",
                "- nam: web",
                "spec.template.spec.containers[0].nam: is not a field of this kind; did you mean `name`?",
            ),
            (
                "a.b/c: x",
                "a.b/c: 1",
                "metadata.labels[\"a.b/c\"]: must be string, is integer",
            ),
            (
                "maxSurge: 1",
                "maxSurge: true",
                "spec.strategy.rollingUpdate.maxSurge: must be integer or string, is boolean",
            ),
            (
                "cpu: 1",
                "cpu: [1]",
                "spec.template.spec.containers[0].resources.limits.cpu: must be string or number, is array",
            ),
            (
                "selector: {matchLabels: {app: web}}",
                "paused: no",
                "spec.selector: is required",
            ),
            (
                "kind: Deployment",
                "kind: Deploymnet",
                "kind: there is no kind `Deploymnet` in apps/v1; did you mean `Deployment`?",
            ),
        ] {
            let found = faults(&DEPLOYMENT.replace(from, to), &[]);
            assert!(found.contains(&expected.to_owned()), "{to}: {found:?}");
        }
    }

    #[test]
    fn fields_beside_the_known_ones_are_found_at_every_level() {
        let found = faults(&DEPLOYMENT.replace("replicas: 2.0", "replicsa: 2.0"), &[]);
        assert!(
            found.iter().any(|fault| fault.starts_with("spec.replicsa")),
            "{found:?}"
        );
        let known = definitions(THING);
        let root = "{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {}, sepc: {}}";
        let found = faults(root, &[&known]);
        assert!(found.iter().any(|fault| fault.starts_with("sepc")), "{found:?}");
    }

    #[test]
    fn the_fields_of_a_root_are_known_at_the_root_alone() {
        for key in ["apiVersion", "kind", "status", "metadata"] {
            let expected = [format!("spec.{key}: is not a field of this kind")];
            let text = DEPLOYMENT.replace("replicas: 2.0", &format!("{key}: {{}}"));
            assert_eq!(faults(&text, &[]), expected);
            let known = definitions(THING);
            let thing =
                format!("{{apiVersion: x.io/v1, kind: Thing, metadata: {{name: a}}, spec: {{{key}: {{}}}}}}");
            assert_eq!(faults(&thing, &[&known]), expected);
        }
    }

    #[test]
    fn whole_numbers_are_integers_in_every_form() {
        for (number, is_integer) in [
            ("-1", true),
            ("2.0", true),
            ("18446744073709551615", true),
            ("0.5", false),
        ] {
            let known = definitions("{type: object, properties: {spec: {type: integer}}}");
            let text = format!("{{apiVersion: x.io/v1, kind: Thing, metadata: {{name: a}}, spec: {number}}}");
            assert_eq!(faults(&text, &[&known]).is_empty(), is_integer, "{number}");
        }
    }

    /// The schema of a definition contains itself.
    #[test]
    fn an_object_is_looked_into_down_to_128_levels() {
        let definition = |levels: usize| {
            let schema = (0..levels).fold(json!({"type": 1}), |inner, _| json!({"properties": {"a": inner}}));
            let names = json!({"kind": "Thing", "plural": "things"});
            let version =
                json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
            let object = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.x.io"},
                "spec": {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]},
            });
            match fit(object.as_object().unwrap(), &[], &BuiltIn::new()) {
                SchemaFit::BuiltIn(faults) => faults.len(),
                _ => unreachable!("a built-in kind"),
            }
        };
        // Five levels to the schema, two for each property, and one for the type.
        assert_eq!(definition(61), 1);
        assert_eq!(definition(62), 0);
    }

    #[test]
    fn a_similar_name_differs_in_a_third_of_its_letters() {
        let nearest = |name: &str| validate::nearest(name, ["volume", "key"].into_iter());
        assert_eq!(nearest("volume"), "; did you mean `volume`?");
        assert_eq!(nearest("xxlume"), "; did you mean `volume`?");
        assert_eq!(nearest("xxxume"), "");
        assert_eq!(nearest("kex"), "; did you mean `key`?");
        assert_eq!(nearest("kxx"), "");
    }

    #[test]
    fn what_another_resource_will_say_fits_everywhere() {
        let text = DEPLOYMENT.replace("replicas: 2.0", "replicas: $kusion_path.v1:ConfigMap:a:b.data.n");
        assert_eq!(faults(&text, &[]), Vec::<String>::new());
    }

    #[test]
    fn versions_and_kinds_that_nothing_describes_are_told_apart() {
        let fit = |version: &str, kind: &str| {
            let object = object(&format!(
                "{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}}}"
            ));
            fit(&object, &[], &BuiltIn::new())
        };
        assert_eq!(
            fit("policy/v1beta1", "PodDisruptionBudget"),
            SchemaFit::OtherVersion
        );
        assert_eq!(
            fit("networking.k8s.io/v1beta9", "Ingress"),
            SchemaFit::OtherVersion
        );
        assert_eq!(fit("gateway.networking.k8s.io/v1", "Gateway"), SchemaFit::Unknown);
        assert_eq!(fit("monitoring.coreos.com/v1", "Rule"), SchemaFit::Unknown);
    }

    fn definitions(schema: &str) -> CrdSchemas {
        let mut definitions = CrdSchemas::default();
        define(schema, &mut definitions);
        definitions
    }

    fn define(schema: &str, definitions: &mut CrdSchemas) {
        let text = format!(
            "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: things.x.io}},
              spec: {{group: x.io, scope: Namespaced, names: {{kind: Thing, plural: things}},
                     versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]}}}}"
        );
        assert_eq!(faults(&text, &[]), Vec::<String>::new(), "{text}");
        definitions.add(&object(&text));
    }

    const THING: &str = "{type: object, required: [spec], properties: {spec: {type: object, properties: {
        size: {type: integer, minimum: 1, maximum: 5}, mode: {type: string, enum: [a, b]}, port: {x-kubernetes-int-or-string: true},
        free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {n: {type: integer}}},
        map: {type: object, additionalProperties: {type: string}}, none: {type: object}, names: {type: array, maxItems: 1, items: {type: string}},
        inner: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object}}}}}}}";

    #[test]
    fn a_custom_resource_is_held_against_its_definition() {
        let known = definitions(THING);
        let thing = |spec: &str| {
            let text = format!(
                "{{apiVersion: x.io/v1, kind: Thing, metadata: {{name: a}}, status: {{x: 1}}, spec: {spec}}}"
            );
            faults(&text, &[&known])
        };
        let none = Vec::<String>::new();
        assert_eq!(
            thing("{size: 5, mode: a, port: http, free: {n: 1, x: y}, map: {a: b}, none: {}, names: [a]}"),
            none
        );
        assert_eq!(
            thing("{inner: {apiVersion: v1, kind: Pod, metadata: {name: x}}, port: null}"),
            none
        );
        for (spec, expected) in [
            (
                "{sise: 1}",
                "spec.sise: is not a field of this kind; did you mean `size`?",
            ),
            ("{size: 6}", "spec.size: must be at most 5"),
            ("{size: 0}", "spec.size: must be at least 1"),
            ("{mode: c}", "spec.mode: must be one of \"a\", \"b\""),
            ("{port: [1]}", "spec.port: must be integer or string, is array"),
            ("{free: {n: x}}", "spec.free.n: must be integer, is string"),
            ("{map: {a: 1}}", "spec.map.a: must be string, is integer"),
            ("{none: {a: 1}}", "spec.none.a: is not a field of this kind"),
            ("{names: [a, b]}", "spec.names: must be at most 1 items"),
            ("{names: [1]}", "spec.names[0]: must be string, is integer"),
            ("null", "spec: is required"),
        ] {
            assert_eq!(thing(spec), [expected], "{spec}");
        }
        let text = "{apiVersion: x.io/v1, kind: Thing, metadata: {name: 1}, spec: {}}";
        assert_eq!(
            faults(text, &[&known]),
            ["metadata.name: must be string, is integer"]
        );
        assert_eq!(faults(&text.replace("v1", "v2"), &[&known]), ["no schema"]);
    }

    #[test]
    fn of_several_definitions_one_must_fit() {
        let mut both = definitions(THING);
        define(&THING.replace("maximum: 5", "maximum: 9"), &mut both);
        let text = "{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {size: 7}}";
        assert_eq!(faults(text, &[&both]), Vec::<String>::new());
        assert_eq!(faults(&text.replace('7', "10"), &[&both]).len(), 1);
    }

    #[test]
    fn no_value_is_ever_said() {
        for key in ["type", "data"] {
            let text = format!("{{apiVersion: v1, kind: Secret, metadata: {{name: a}}, {key}: [hunter2]}}");
            let said = faults(&text, &[]);
            assert_eq!(said.len(), 1);
            assert!(!said[0].contains("hunter2"), "{said:?}");
        }
    }

    /// A size of every type has limits; those of `int32` hold in built-in kinds alone.
    #[test]
    fn each_type_has_its_limits() {
        let known = definitions(
            "{type: object, properties: {spec: {type: object, properties: {
            text: {type: string, minLength: 2, maxLength: 3}, list: {type: array, minItems: 1, items: {type: string}},
            map: {type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: string}},
            number: {type: integer, format: int32}, share: {type: number, minimum: 0.5}}}}}",
        );
        for (spec, expected) in [
            ("{text: äöü}", None),
            ("{text: ä}", Some("spec.text: must be at least 2 characters")),
            ("{text: äöüß}", Some("spec.text: must be at most 3 characters")),
            ("{list: [a]}", None),
            ("{list: []}", Some("spec.list: must be at least 1 items")),
            ("{map: {a: b}}", None),
            ("{map: {}}", Some("spec.map: must be at least 1 fields")),
            (
                "{map: {a: p, b: q, c: r}}",
                Some("spec.map: must be at most 2 fields"),
            ),
            ("{number: 3000000000}", None),
            ("{share: 0.5}", None),
            ("{share: 0.25}", Some("spec.share: must be at least 0.5")),
        ] {
            let text = format!("{{apiVersion: x.io/v1, kind: Thing, metadata: {{name: a}}, spec: {spec}}}");
            let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(faults(&text, &[&known]), expected, "{spec}");
        }
        // Nothing but a number has the limits of a number.
        let text = DEPLOYMENT.replace("replicas: 2.0", "replicas: [1]");
        assert_eq!(faults(&text, &[]), ["spec.replicas: must be integer, is array"]);
    }

    /// Both its kind and its version make a definition.
    #[test]
    fn an_object_of_another_kind_defines_nothing() {
        let definition = |version: &str, kind: &str| {
            let mut definitions = CrdSchemas::default();
            definitions.add(&object(&format!(
                "{{apiVersion: {version}, kind: {kind}, spec: {{group: x.io, names: {{kind: Thing}}, \
                 versions: [{{name: v1, schema: {{openAPIV3Schema: {{type: object}}}}}}]}}}}"
            )));
            let thing = "{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}}";
            faults(thing, &[&definitions]).is_empty()
        };
        assert!(definition("apiextensions.k8s.io/v1", "CustomResourceDefinition"));
        assert!(!definition(
            "apiextensions.k8s.io/v1beta1",
            "CustomResourceDefinition"
        ));
        assert!(!definition("apiextensions.k8s.io/v1", "Thing"));
    }

    #[test]
    fn the_built_in_kinds_have_a_version() {
        let version = BuiltIn::new().version().to_owned();
        let rest = version.strip_prefix("v1.").unwrap();
        assert!(
            rest.split('.').all(|part| part.parse::<u32>().is_ok()),
            "{version}"
        );
    }
}
