//! Modules that are not built in: what they are asked, and what becomes of their answers.

use serde_json::{Value, json};

use super::{MODULES, Stack, platform, service};
use crate::{
    AppConfigurations, AppPart, AppStack, ForeignAnswer, Generated, Workspace, foreign_calls, platform_names,
};
use konverge_base::model::RepoPath;
use konverge_repo::konfig::declared_dependencies;

const PATCHED: &str = "v1:ConfigMap:default:foo-db";

/// A service, and the accessory `db` of a module that is not built in.
fn with_answer(resources: &[&str], patchers: &[&str]) -> Stack {
    let mut apps = json!({"foo": {
        "_type": "kam.v1.app_configuration.AppConfiguration",
        "workload": service(json!({})),
        "accessories": {"db": {"_type": "mysql.MySQL", "size": 3}},
    }});
    apps["foo"]["workload"]["containers"]["nginx"]["env"] = json!({"B": "own", "Z": "own"});
    let mut stack = Stack::new(apps);
    stack.modules = MODULES.replace("kusionstack/mysql", "acme/mysql");
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let part = AppPart {
        app: "foo".to_owned(),
        accessory: Some("db".to_owned()),
    };
    let answer = ForeignAnswer {
        resources: owned(resources),
        patchers: owned(patchers),
    };
    stack.answers.insert(part, answer);
    stack
}

const DB: &str = "id: v1:ConfigMap:default:foo-db\ntype: Kubernetes\nattributes: {apiVersion: v1, kind: ConfigMap, metadata: {name: foo-db, namespace: default, creationTimestamp: null}}\nextensions: {GVK: '/v1, Kind=ConfigMap'}\n";
const WEB: &str = "apps/v1:Deployment:default:default-dev-foo";

#[test]
fn a_patch_is_applied_in_go_s_names_and_in_kubernetes_names() {
    let lower = "environments:\n- {name: A, value: '1', valuefrom: null}\n- name: SECRET\n  value: ''\n  valuefrom: {fieldref: null, resourcefieldref: {containername: c, resource: limits.cpu, divisor: {format: ''}}, configmapkeyref: null, secretkeyref: {localobjectreference: {name: s}, key: k, optional: null}}\nlabels: {l: '1'}\npodLabels: {p: '1'}\nannotations: {a: '1'}\npodAnnotations: {pa: '1'}\n";
    let upper = "environments:\n- {name: A, value: '1'}\n- name: SECRET\n  valueFrom: {resourceFieldRef: {containerName: c, resource: limits.cpu}, secretKeyRef: {name: s, key: k}}\nlabels: {l: '1'}\npodlabels: {p: '1'}\nannotations: {a: '1'}\npodannotations: {pa: '1'}\njsonPatcher: null\n";
    let of = |text: &str| with_answer(&[DB], &[text]).attributes(WEB);
    assert_eq!(of(lower), of(upper));
    let web = of(lower);
    let template = &web["spec"]["template"];
    let names: Vec<_> = template["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["SECRET", "A", "B", "Z"]);
    let secret = &template["spec"]["containers"][0]["env"][0];
    assert_eq!(
        secret["valueFrom"]["secretKeyRef"],
        json!({"name": "s", "key": "k"})
    );
    assert_eq!(secret.get("value"), None);
    for (place, key) in [(&web["metadata"], "l"), (&template["metadata"], "p")] {
        assert_eq!(place["labels"][key], "1");
    }
    assert_eq!(web["metadata"]["annotations"]["a"], "1");
    assert_eq!(template["metadata"]["annotations"]["pa"], "1");
    assert_eq!(web["spec"]["selector"]["matchLabels"].get("p"), None);
}

#[test]
fn what_a_patch_loses_is_said() {
    let notes = |patch: &str| with_answer(&[DB], &[patch]).generate().unwrap().notes.join("\n");
    let twice = notes("environments: [{name: B, value: theirs}]");
    assert!(
        twice.contains("sets the variable `B` of the container `nginx`"),
        "{twice}"
    );
    let unknown = notes("jsonPatcher: {'v1:Secret:x:y': {type: MergePatch, payload: '{}'}}");
    assert!(
        unknown.contains("patches `v1:Secret:x:y`, which is not among"),
        "{unknown}"
    );
    let removed = with_answer(
        &[DB],
        &["environments: [{name: B, value: 'ops://kusionstack.io/remove'}]"],
    );
    let removed = removed.attributes(WEB);
    assert_eq!(
        removed["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([{"name": "Z", "value": "own"}])
    );
    for (patch, says) in [
        ("enviroments: []", "unknown key `enviroments`"),
        ("labels: {a: 1}", "`a` is not a string"),
        ("environments: [{value: x}]", "has no name"),
        ("[]", "it is not a mapping"),
        (
            "jsonPatcher: {x: {type: Other, payload: ''}}",
            "neither `MergePatch` nor",
        ),
    ] {
        let error = with_answer(&[DB], &[patch]).generate().unwrap_err().to_string();
        assert!(
            error.contains(says) && error.contains("`mysql`"),
            "{patch}: {error}"
        );
    }
}

#[test]
fn json_patches_reach_the_resources_of_the_application() {
    let bytes: Vec<String> = br#"{"data": {"b": "2"}}"#.iter().map(u8::to_string).collect();
    let patch = format!(
        "jsonPatcher: {{'{PATCHED}': {{type: MergePatch, payload: [{}]}}}}",
        bytes.join(",")
    );
    let list = format!(
        "jsonPatcher: {{'{PATCHED}': {{type: JSONPatch, payload: '[{{\"op\": \"add\", \"path\": \"/data/c\", \"value\": \"3\"}}]'}}}}"
    );
    let patched = with_answer(&[DB], &[&patch, &list]).attributes(PATCHED);
    assert_eq!(patched["data"], json!({"b": "2", "c": "3"}));
}

#[test]
fn a_patch_needs_a_workload() {
    let mut stack = with_answer(&[DB], &["labels: {a: b}"]);
    stack.apps["foo"].as_object_mut().unwrap().remove("workload");
    let error = stack.generate().unwrap_err().to_string();
    assert!(
        error.contains("no workload of the application is known"),
        "{error}"
    );
}

#[test]
fn the_workload_is_the_only_resource_of_its_module_or_the_marked_one() {
    let workload = |mark: &str| {
        format!(
            "id: v1:ConfigMap:default:w{}\ntype: Kubernetes\nattributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: w, namespace: default}}}}\nextensions: {mark}\n",
            mark.len()
        )
    };
    let generate = |resources: &[String]| {
        let mut stack = with_answer(&[], &[]);
        stack.apps = json!({"foo": {"workload": {"_type": "mysql.Web"}}});
        stack.answers.clear();
        let part = AppPart {
            app: "foo".to_owned(),
            accessory: None,
        };
        let answer = ForeignAnswer {
            resources: resources.to_vec(),
            patchers: vec!["labels: {x: yellow}".to_owned()],
        };
        stack.answers.insert(part, answer);
        stack.generate()
    };
    let labelled = |generated: &Generated| {
        let resources = generated.spec.resources.iter();
        let labelled =
            resources.filter(|resource| resource.attributes["metadata"]["labels"]["x"] == "yellow");
        labelled
            .map(|resource| {
                (
                    resource.id.to_string(),
                    resource.extensions["kusion.io/is-workload"].clone(),
                )
            })
            .collect::<Vec<_>>()
    };
    let alone = generate(&[workload("{}")]).unwrap();
    assert_eq!(
        labelled(&alone),
        [("v1:ConfigMap:default:w2".to_owned(), json!(true))]
    );
    let marked = workload("{kusion.io/is-workload: 'true'}");
    let among = generate(&[workload("{}"), marked.clone()]).unwrap();
    assert_eq!(
        labelled(&among),
        [("v1:ConfigMap:default:w31".to_owned(), json!(true))]
    );
    let unmarked = generate(&[workload("{}"), workload("{ }")])
        .unwrap_err()
        .to_string();
    assert!(
        unmarked.contains("no workload of the application is known"),
        "{unmarked}"
    );
    let two = generate(&[marked, workload("{kusion.io/is-workload: true}")])
        .unwrap_err()
        .to_string();
    assert!(two.contains("several workloads"), "{two}");
}

#[test]
fn a_call_has_the_parts_as_yaml() {
    let mut stack = with_answer(&[DB], &[]);
    stack.workspace = platform("mysql", "{size: 5, importedResources: {a: b}}")
        + "context: {region: x, KUBECONFIG_PATH: /k}\n";
    let dependencies = declared_dependencies(stack.modules.as_bytes()).unwrap();
    let file = RepoPath::normalize("workspaces/dev.yaml").unwrap();
    let platform = Workspace::parse(&file, &stack.workspace).unwrap();
    let platform = platform.platform("default", &["mysql".to_owned()]);
    let apps = AppConfigurations::recognize(std::slice::from_ref(&stack.apps))
        .unwrap()
        .unwrap();
    let calls = foreign_calls(
        &apps,
        &AppStack {
            project: "default",
            name: "dev",
            namespace: None,
            dependencies: &dependencies,
            platform: &platform,
        },
    );
    let [call] = <[_; 1]>::try_from(calls.unwrap()).unwrap();
    let read = |text: &str| konverge_base::yaml::from_str::<Value>(text).unwrap();
    assert_eq!(call.module, "mysql");
    assert_eq!(read(&call.dev_config), json!({"_type": "mysql.MySQL", "size": 3}));
    assert_eq!(
        read(&call.platform_config),
        json!({"size": 5, "importedResources": {"a": "b"}})
    );
    assert_eq!(read(&call.context), json!({"region": "x"}));
    assert_eq!(read(&call.workload)["_type"], "service.Service");
}

#[test]
fn the_workloads_of_kam_0_1_have_the_settings_of_service_and_job() {
    let mut workload = service(json!({}));
    workload["_type"] = json!("kam.v1.workload.Service");
    let mut stack = Stack::with_workload(workload).workspace(&platform("service", "{replicas: 3}"));
    stack.modules =
        "[dependencies]\nkam = { git = \"https://github.com/KusionStack/kam.git\", tag = \"0.1.0\" }\n"
            .to_owned();
    assert_eq!(stack.attributes(WEB)["spec"]["replicas"], 3);
    // Today's `kam` brings no settings of modules that the stack does not depend on.
    let today = stack.modules.replace("0.1.0", "0.2.0");
    assert_eq!(
        platform_names(&declared_dependencies(today.as_bytes()).unwrap()),
        ["kam"]
    );
}

#[test]
fn what_an_application_says_in_vain_is_said() {
    let mut stack = Stack::with_workload(service(json!({})));
    stack.apps["foo"]["labels"] = json!({"team": "a"});
    stack.apps["foo"]["annotations"] = json!({});
    let notes = stack.generate().unwrap().notes;
    assert_eq!(
        notes,
        ["`foo`: `labels` of the application has no effect: set it on the workload"]
    );
}

#[test]
fn a_module_has_the_regions_of_the_context_in_its_environment() {
    let apps =
        json!({"foo": {"workload": service(json!({})), "accessories": {"db": {"_type": "mysql.MySQL"}}}});
    let apps = AppConfigurations::recognize(&[apps]).unwrap().unwrap();
    let dependencies = MODULES.replace("kusionstack/mysql", "acme/mysql");
    let dependencies = declared_dependencies(dependencies.as_bytes()).unwrap();
    let text =
        "context: {AWS_REGION: us-east-1, ALICLOUD_REGION: 3, AWS_ACCESS_KEY_ID: 'ref://a/b', other: x}\n";
    let workspace = Workspace::parse(&RepoPath::normalize("workspaces/dev.yaml").unwrap(), text).unwrap();
    let calls = foreign_calls(
        &apps,
        &AppStack {
            project: "default",
            name: "dev",
            namespace: None,
            dependencies: &dependencies,
            platform: &workspace.platform("default", &platform_names(&dependencies)),
        },
    );
    let environment = &calls.unwrap()[0].environment;
    assert_eq!(environment.len(), 1, "{environment:?}");
    assert_eq!(environment["AWS_REGION"], "us-east-1");
}

#[test]
fn an_answer_with_nothing_is_said() {
    let notes = with_answer(&[], &[]).generate().unwrap().notes;
    let says = |note: &String| note.contains("returned nothing for the accessory `db`");
    assert!(notes.iter().any(says), "{notes:?}");
    let notes = with_answer(&[DB], &[]).generate().unwrap().notes;
    assert!(!notes.iter().any(says), "{notes:?}");
}

#[test]
fn a_resource_that_exists_is_imported_by_the_id_of_the_workspace() {
    let database = "id: aliyun:alicloud:alicloud_db_instance:db\ntype: Terraform\nattributes: {engine: MySQL}\nextensions: {provider: 'registry.terraform.io/aliyun/alicloud/1.209.1', resourceType: alicloud_db_instance}\n";
    let mut stack = with_answer(&[database], &[]);
    stack.workspace = platform(
        "mysql",
        "{importedResources: {'aliyun:alicloud:alicloud_db_instance:db': rm-1}}",
    );
    let generated = stack.generate().unwrap();
    let mut resources = generated.spec.resources.iter();
    let database = resources
        .find(|resource| resource.id.as_str().ends_with(":db"))
        .unwrap();
    assert_eq!(database.extensions["kusionstack.io/import-id"], "rm-1");
    assert!(
        !generated
            .notes
            .iter()
            .any(|note| note.contains("rm-1") || note.contains("imports")),
        "{:?}",
        generated.notes
    );
}
