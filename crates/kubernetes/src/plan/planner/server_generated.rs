//! Values that the server generates at every write: cluster IPs, node ports, UIDs. They differ between a
//! dry-run and the write, so they are *known after apply*.

use serde_json::{Map, Value, json};

use crate::api::discovery::items;
use konverge_base::model::{
    GroupKind,
    masked_value::{is_unknown, unknown},
};

/// The prefix of the volume that the server adds to each Pod. The rest of its name is random.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Returns the values that references can use after a creation, from the response to a dry-run, or else from
/// the sent object.
pub(super) fn after_create(mut dry: Value, asked: &Value) -> Value {
    if let Some(metadata) = dry["metadata"].as_object_mut() {
        for key in ["uid", "creationTimestamp"] {
            metadata.insert(key.to_owned(), unknown());
        }
    }
    mark(&mut dry, asked, None);
    after_update(dry)
}

/// Returns the values that references can use after an update. Versions and status are unknown, because only the write
/// determines them.
pub(super) fn after_update(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.shift_remove("managedFields");
        for key in ["resourceVersion", "generation"] {
            metadata.insert(key.to_owned(), unknown());
        }
    }
    object["status"] = unknown();
    object
}

/// Marks values as unknown that the server generated only for the dry-run: they were not sent, and the live
/// object does not have them.
pub(super) fn mark(dry: &mut Value, asked: &Value, live: Option<&Value>) {
    let live = live.unwrap_or(&Value::Null);
    match GroupKind::from_object(dry) {
        GroupKind::SERVICE => mark_service(&mut dry["spec"], &asked["spec"], &live["spec"]),
        GroupKind::JOB => mark_job(&mut dry["spec"], &asked["spec"], &live["spec"]),
        GroupKind::POD => mark_pod(&mut dry["spec"], &live["spec"]),
        _ => {}
    }
}

fn mark_service(dry: &mut Value, asked: &Value, live: &Value) {
    let known: Vec<&Value> = [asked, live].into_iter().flat_map(addresses).collect();
    let is_known = |address: &Value| address == "None" || known.contains(&address);
    if dry["clusterIP"].is_string() && !is_known(&dry["clusterIP"]) {
        dry["clusterIP"] = unknown();
    }
    let all = dry["clusterIPs"].as_array();
    if all.is_some_and(|all| !all.iter().all(is_known)) {
        dry["clusterIPs"] = unknown();
    }
    let port = &dry["healthCheckNodePort"];
    if !port.is_null() && *port != asked["healthCheckNodePort"] && *port != live["healthCheckNodePort"] {
        dry["healthCheckNodePort"] = unknown();
    }
    let known: Vec<&Value> = [asked, live].into_iter().flat_map(node_ports).collect();
    for port in members_mut(dry, "ports") {
        if port
            .get("nodePort")
            .is_some_and(|number| !known.contains(&number))
        {
            port.insert("nodePort".to_owned(), unknown());
        }
    }
}

fn addresses(spec: &Value) -> impl Iterator<Item = &Value> {
    let one = Some(&spec["clusterIP"]).filter(|address| !address.is_null());
    one.into_iter().chain(items(&spec["clusterIPs"]))
}

fn node_ports(spec: &Value) -> impl Iterator<Item = &Value> {
    items(&spec["ports"]).filter_map(|port| port.get("nodePort"))
}

fn mark_job(dry: &mut Value, asked: &Value, live: &Value) {
    if asked["manualSelector"] == true || !live["selector"].is_null() {
        return;
    }
    dry["selector"] = unknown();
    let labels = dry.pointer_mut("/template/metadata/labels");
    let labels = labels.and_then(Value::as_object_mut).into_iter().flatten();
    for (_, value) in labels.filter(|(key, _)| key.ends_with("controller-uid")) {
        *value = unknown();
    }
}

fn mark_pod(dry: &mut Value, live: &Value) {
    let is_live = |name: &str| items(&live["volumes"]).any(|volume| volume["name"] == name);
    let mark = |member: &mut Map<String, Value>| {
        let name = member.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.starts_with(TOKEN_VOLUME) && !is_live(name) {
            member.insert("name".to_owned(), unknown());
        }
    };
    members_mut(dry, "volumes").for_each(mark);
    for containers in ["initContainers", "containers"] {
        for container in members_mut(dry, containers) {
            let mounts = container.get_mut("volumeMounts").and_then(Value::as_array_mut);
            let mounts = mounts.into_iter().flatten();
            mounts.filter_map(Value::as_object_mut).for_each(mark);
        }
    }
}

/// Removes values from a trial object under a temporary name that only one object may have and the live
/// object already has.
pub(super) fn give_up_held(trial: &mut Value, live: &Value) {
    if GroupKind::from_object(trial) != GroupKind::SERVICE {
        return;
    }
    let (trial, live) = (&mut trial["spec"], &live["spec"]);
    let held: Vec<&Value> = addresses(live).filter(|address| *address != "None").collect();
    let ports: Vec<&Value> = node_ports(live).collect();
    if let Some(spec) = trial.as_object_mut() {
        let holds = |value: Option<&Value>| match value {
            Some(Value::Array(all)) => all.iter().any(|one| held.contains(&one)),
            Some(one) => held.contains(&one),
            None => false,
        };
        if holds(spec.get("clusterIP")) || holds(spec.get("clusterIPs")) {
            spec.shift_remove("clusterIP");
            spec.shift_remove("clusterIPs");
        }
        if spec.get("healthCheckNodePort") == live.get("healthCheckNodePort") {
            spec.shift_remove("healthCheckNodePort");
        }
    }
    for port in members_mut(trial, "ports") {
        if port.get("nodePort").is_some_and(|number| ports.contains(&number)) {
            port.shift_remove("nodePort");
        }
    }
}

/// Restores values in the response that were removed for a trial.
pub(super) fn put_back_held(answer: &mut Value, asked: &Value) {
    if GroupKind::from_object(answer) != GroupKind::SERVICE {
        return;
    }
    let (answer, asked) = (&mut answer["spec"], &asked["spec"]);
    for key in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
        if !asked[key].is_null() {
            answer[key] = asked[key].clone();
        }
    }
    let single = items(&answer["clusterIPs"]).count() == 1;
    if !asked["clusterIP"].is_null() && asked["clusterIPs"].is_null() && single {
        answer["clusterIPs"] = json!([asked["clusterIP"]]);
    }
    let protocol = |port: &Value| port["protocol"].as_str().unwrap_or("TCP").to_owned();
    for wanted in items(&asked["ports"]).filter(|port| !port["nodePort"].is_null()) {
        let ports = answer["ports"].as_array_mut().into_iter().flatten();
        for port in ports.filter(|p| p["port"] == wanted["port"] && protocol(p) == protocol(wanted)) {
            port["nodePort"] = wanted["nodePort"].clone();
        }
    }
}

/// Returns the maps in the list under a key.
fn members_mut<'v>(
    object: &'v mut Value,
    key: &str,
) -> impl Iterator<Item = &'v mut Map<String, Value>> + use<'v> {
    let list = object.get_mut(key).and_then(Value::as_array_mut);
    let items = list.into_iter().flatten();
    items
        .filter(|item| !is_unknown(item))
        .filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})
    }

    #[test]
    fn what_was_asked_for_or_is_there_stays_known() {
        let asked = service(json!({"ports": [{"port": 80, "nodePort": 30080}, {"port": 81}, {"port": 82}]}));
        let live = service(
            json!({"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": [{"port": 81, "nodePort": 30081}]}),
        );
        let ports = json!([{"port": 80, "nodePort": 30080}, {"port": 81, "nodePort": 30081}, {"port": 82, "nodePort": 31999}]);
        let mut dry =
            service(json!({"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7", "fd00::1"], "ports": ports}));
        mark(&mut dry, &asked, Some(&live));
        let spec = &dry["spec"];
        assert_eq!(spec["clusterIP"], "10.0.0.7");
        assert!(is_unknown(&spec["clusterIPs"]), "one of them is new");
        assert_eq!(
            (&spec["ports"][0]["nodePort"], &spec["ports"][1]["nodePort"]),
            (&json!(30080), &json!(30081))
        );
        assert!(is_unknown(&spec["ports"][2]["nodePort"]));
        let mut dry = service(json!({"clusterIP": "10.0.0.0", "clusterIPs": ["10.0.0.0"]}));
        mark(
            &mut dry,
            &service(json!({})),
            Some(&service(json!({"type": "ExternalName"}))),
        );
        assert!(is_unknown(&dry["spec"]["clusterIP"]) && is_unknown(&dry["spec"]["clusterIPs"]));
    }

    #[test]
    fn a_pods_token_volume_has_a_random_name() {
        let volumes = json!([{"name": "kube-api-access-x7x"}, {"name": "data"}]);
        let mounts = json!([{"name": "kube-api-access-x7x", "mountPath": "/var/run"}]);
        let mut dry = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"volumes": volumes, "containers": [{"volumeMounts": mounts}]}});
        let live = dry.clone();
        mark(&mut dry, &Value::Null, Some(&live));
        assert_eq!(dry, live);
        mark(&mut dry, &Value::Null, None);
        assert!(is_unknown(&dry["spec"]["volumes"][0]["name"]));
        assert!(is_unknown(
            &dry["spec"]["containers"][0]["volumeMounts"][0]["name"]
        ));
        assert_eq!(dry["spec"]["volumes"][1]["name"], "data");
    }

    #[test]
    fn a_custom_resource_generates_nothing() {
        for kind in ["Service", "Job", "Pod"] {
            let dry = json!({"apiVersion": "example.com/v1", "kind": kind,
                "spec": {"clusterIP": "10.0.0.7", "template": {}, "volumes": [{"name": "kube-api-access-x7x"}]}});
            let mut marked = dry.clone();
            mark(&mut marked, &Value::Null, None);
            assert_eq!(marked, dry, "{kind}");
        }
    }

    #[test]
    fn a_trial_beside_the_old_one_takes_nothing_that_the_old_one_holds() {
        let live = service(
            json!({"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": [{"port": 80, "nodePort": 30080}]}),
        );
        let asked = service(
            json!({"clusterIP": "10.0.0.7", "ports": [{"port": 80, "nodePort": 30080}, {"port": 81, "nodePort": 30081}]}),
        );
        let mut trial = asked.clone();
        give_up_held(&mut trial, &live);
        assert_eq!(
            trial,
            service(json!({"ports": [{"port": 80}, {"port": 81, "nodePort": 30081}]}))
        );
        let mut answer = service(
            json!({"clusterIP": "10.0.0.0", "clusterIPs": ["10.0.0.0"], "ports": [{"port": 80, "protocol": "TCP", "nodePort": 31000}, {"port": 81, "nodePort": 30081}]}),
        );
        put_back_held(&mut answer, &asked);
        mark(&mut answer, &asked, None);
        assert_eq!(answer["spec"]["clusterIPs"], json!(["10.0.0.7"]));
        assert_eq!(answer["spec"]["ports"][0]["nodePort"], 30080);
        let headless = service(json!({"clusterIP": "None"}));
        let mut trial = headless.clone();
        give_up_held(&mut trial, &headless);
        assert_eq!(trial, headless);
    }
}
