//! Kusion's own formats, for import: `kusion_state.json` (v0.4 to v0.9) and the release files of later
//! versions.

use serde_json::{Map, Value};

use konverge_base::{
    error::SharedError,
    model::{
        ResourceId,
        spec::RuntimeKind,
        state::{Recorded, RuntimeRecord},
    },
};

/// The content of a Kusion file.
#[derive(Debug, Clone, PartialEq)]
pub struct KusionState {
    /// The tenant, if there is one.
    pub tenant: Option<String>,
    /// The project's name in Kusion.
    pub project: String,
    /// The stack's name in Kusion.
    pub stack: String,
    /// The serial or revision, for display.
    pub revision: u64,
    /// The workspace of a release. All stacks of the project in that workspace share its state.
    pub workspace: Option<String>,
    /// The phase of a release that Kusion has not ended, and by which it locks the project; `None` if it has
    /// ended.
    pub under_way: Option<String>,
    /// The applied resources in clear text: secrets must be masked before anything is written.
    pub resources: Vec<Recorded>,
}

/// The phases of a release that has ended. Before that, Kusion starts no other release.
const ENDED: [&str; 2] = ["succeeded", "failed"];

/// The file in a folder of releases that contains the number of the newest one.
pub const RELEASES: &str = ".metadata.yml";

/// The files in a stack's folder in which Kusion keeps the state of the stack.
pub const STATE_FILES: [&str; 3] = ["kusion_state.json", "kusion_state.yaml", "kusion_state.yml"];

/// The error for a file that is not Kusion's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a state or release of Kusion")]
pub struct NotKusion(#[source] pub SharedError);

/// Parses either format, as JSON or as YAML.
///
/// # Errors
/// The text has neither format.
pub fn read(text: &str) -> Result<KusionState, NotKusion> {
    let value: Value = konverge_base::yaml::from_long_str(text).map_err(|error| NotKusion(error.into()))?;
    let word = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let project = word("project").ok_or_else(|| NotKusion("it names no `project`".into()))?;
    let stack = word("stack").ok_or_else(|| NotKusion("it names no `stack`".into()))?;
    // A release contains the state in a field. Otherwise the file itself is the state.
    let release = value.get("phase").is_some() || value.get("spec").is_some();
    let holder = if release {
        value.get("state").unwrap_or(&Value::Null)
    } else {
        &value
    };
    let resources = match holder.get("resources") {
        Some(Value::Array(resources)) => resources.iter().map(resource).collect::<Result<_, _>>()?,
        Some(Value::Null) | None => Vec::new(),
        Some(_) => return Err(NotKusion("`resources` is not a list".into())),
    };
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    Ok(KusionState {
        tenant: word("tenant").map(str::to_owned),
        project: project.to_owned(),
        stack: stack.to_owned(),
        revision: number("serial").or_else(|| number("revision")).unwrap_or(0),
        workspace: word("workspace").map(str::to_owned),
        under_way: word("phase")
            .filter(|phase| !ENDED.contains(phase))
            .map(str::to_owned),
        resources,
    })
}

/// Returns the file name of the newest release, from the content of the file [`RELEASES`].
///
/// # Errors
/// The text is not such a file, or there is no release yet.
pub fn newest_release(metadata: &str) -> Result<String, NotKusion> {
    let value: Value = konverge_base::yaml::from_str(metadata).map_err(|error| NotKusion(error.into()))?;
    match value.get("latestRevision").and_then(Value::as_u64) {
        Some(revision) if revision > 0 => Ok(format!("{revision}.yaml")),
        _ => Err(NotKusion("it names no `latestRevision`".into())),
    }
}

fn resource(value: &Value) -> Result<Recorded, NotKusion> {
    let id = value.get("id").and_then(Value::as_str).unwrap_or_default();
    let id: ResourceId = id
        .parse()
        .map_err(|error| NotKusion(SharedError::from(error).context("a resource")))?;
    let runtime = match value.get("type").and_then(Value::as_str) {
        // v0.4 had no types, because all resources were Kubernetes objects.
        None | Some("" | "Kubernetes") => RuntimeKind::Kubernetes,
        Some("Terraform") => RuntimeKind::Terraform,
        Some(other) => {
            return Err(NotKusion(
                format!("`{id}` is of type `{}`", other.escape_debug()).into(),
            ));
        }
    };
    let map = |name: &str| {
        value
            .get(name)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_else(Map::new)
    };
    let depends_on = value.get("dependsOn").and_then(Value::as_array);
    Ok(Recorded {
        runtime,
        cluster: None,
        attributes: map("attributes").into(),
        depends_on: depends_on
            .into_iter()
            .flatten()
            .filter_map(|id| id.as_str()?.parse().ok())
            .collect(),
        extensions: map("extensions"),
        object_hash: None,
        private: RuntimeRecord::default(),
        id,
        sharing: konverge_base::model::spec::Sharing::default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STATE: &str = r#"{"id":1,"tenant":"main","project":"http-echo","stack":"dev","cluster":"","version":1,
        "kusionVersion":"v0.9.0","serial":7,"operator":"me","resources":[
        {"id":"v1:Namespace:http-echo","type":"Kubernetes","attributes":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"http-echo"}}},
        {"id":"hashicorp:random:random_password:db","type":"Terraform","attributes":{"length":16},"dependsOn":["v1:Namespace:http-echo"],
         "extensions":{"provider":"registry.terraform.io/hashicorp/random/3.5.1","resourceType":"random_password"}}],
        "createTime":"2023-01-01T00:00:00Z","modifiedTime":"2023-01-01T00:00:00Z"}"#;

    #[test]
    fn a_state_file_of_the_old_kind() {
        let state = read(STATE).unwrap();
        assert_eq!(
            (state.tenant.as_deref(), state.project.as_str(), state.revision),
            (Some("main"), "http-echo", 7)
        );
        assert_eq!(state.resources.len(), 2);
        assert_eq!(
            state.resources[1].depends_on[0].as_str(),
            "v1:Namespace:http-echo"
        );
        assert_eq!(state.resources[1].attributes["length"], 16);
    }

    #[test]
    fn a_release_of_the_new_kind() {
        let release = "project: shop\nworkspace: prod\nrevision: 3\nstack: prod\nphase: succeeded\nspec:\n  resources: []\nstate:\n  resources:\n  - id: v1:Namespace:shop\n    type: Kubernetes\n    attributes: {apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n";
        let state = read(release).unwrap();
        assert_eq!(
            (state.workspace.as_deref(), state.revision, state.resources.len()),
            (Some("prod"), 3, 1)
        );
        assert_eq!(state.under_way, None);
        let applying = read(&release.replace("succeeded", "applying")).unwrap();
        assert_eq!(applying.under_way.as_deref(), Some("applying"));
        assert_eq!(
            read(&release.replace("succeeded", "failed")).unwrap().under_way,
            None
        );
    }

    #[test]
    fn the_newest_release_by_its_metadata() {
        let metadata = "latestRevision: 3\nreleaseMetaDatas:\n- revision: 3\n  stack: prod\n";
        assert_eq!(newest_release(metadata).unwrap(), "3.yaml");
        for bad in ["", "latestRevision: 0\n", "latestRevision: ../1\n", "[3]"] {
            assert!(newest_release(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for bad in [
            "",
            "[]",
            "{\"project\":\"a\"}",
            "{\"project\":\"\",\"stack\":\"b\"}",
            "{\"project\":\"a\",\"stack\":\"\"}",
            "{\"project\":\"a\",\"stack\":\"b\",\"resources\":3}",
            "{\"project\":\"a\",\"stack\":\"b\",\"resources\":[{\"id\":\"\"}]}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    /// A file with this resource, and what is read of it.
    fn read_resource(resource: Value) -> Result<Recorded, NotKusion> {
        let file = json!({"project": "a", "stack": "b", "resources": [resource]});
        read(&file.to_string()).map(|state| state.resources.into_iter().next().unwrap())
    }

    #[test]
    fn a_resource_is_of_a_type_that_is_known() {
        for (kind, expected) in [
            (json!(null), Some(RuntimeKind::Kubernetes)),
            (json!(""), Some(RuntimeKind::Kubernetes)),
            (json!("Kubernetes"), Some(RuntimeKind::Kubernetes)),
            (json!("Terraform"), Some(RuntimeKind::Terraform)),
            (json!("Helm"), None),
        ] {
            let read = read_resource(json!({"id": "v1:Namespace:a", "type": kind}));
            assert_eq!(read.ok().map(|resource| resource.runtime), expected, "{kind}");
        }
    }

    #[test]
    fn every_part_of_a_resource_is_taken_over() {
        let resource = read_resource(json!({
            "id": "v1:ConfigMap:shop:c",
            "attributes": {"kind": "ConfigMap"},
            "dependsOn": ["v1:Namespace:shop", 3, ""],
            "extensions": {"GVK": "/v1, Kind=ConfigMap"},
        }))
        .unwrap();
        assert_eq!(resource.id.as_str(), "v1:ConfigMap:shop:c");
        assert_eq!(json!(resource.attributes), json!({"kind": "ConfigMap"}));
        assert_eq!(json!(resource.depends_on), json!(["v1:Namespace:shop"]));
        assert_eq!(json!(resource.extensions), json!({"GVK": "/v1, Kind=ConfigMap"}));
        let bare = read_resource(json!({"id": "v1:Namespace:a"})).unwrap();
        assert!(bare.attributes.is_empty() && bare.depends_on.is_empty() && bare.extensions.is_empty());
    }

    #[test]
    fn a_release_is_known_by_its_phase_or_by_its_spec() {
        let resources = |name: &str| json!({"resources": [{"id": format!("v1:Namespace:{name}")}]});
        let file = |fields: Value| {
            let mut file = resources("old");
            let named = json!({"project": "a", "stack": "b", "state": resources("new")});
            for part in [named, fields] {
                file.as_object_mut()
                    .unwrap()
                    .extend(part.as_object().unwrap().clone());
            }
            read(&file.to_string()).unwrap()
        };
        for (fields, id) in [
            (json!({}), "v1:Namespace:old"),
            (json!({"phase": "failed"}), "v1:Namespace:new"),
            (json!({"spec": {}}), "v1:Namespace:new"),
            (json!({"phase": "failed", "spec": {}}), "v1:Namespace:new"),
        ] {
            assert_eq!(file(fields.clone()).resources[0].id.as_str(), id, "{fields}");
        }
        assert!(
            file(json!({"phase": "failed", "state": null}))
                .resources
                .is_empty()
        );
        assert_eq!(file(json!({"serial": 4, "revision": 5})).revision, 4);
        assert_eq!(file(json!({"revision": 5})).revision, 5);
        assert_eq!(file(json!({})).revision, 0);
        let empty = file(json!({"tenant": "", "workspace": "", "phase": ""}));
        assert_eq!(
            (empty.tenant, empty.workspace, empty.under_way),
            (None, None, None)
        );
    }
}
