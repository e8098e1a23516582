//! The module `network`: Services, an Ingress and an IngressClass.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    call::{ModuleCall, ModuleOutput, merge_texts},
    network_settings::{
        IngressConfig, NetworkConfig, PlatformNetwork, PlatformPort, PortConfig, WorkloadMetadata,
    },
    workload::with_entries,
};
use crate::{KusionError, kubernetes_object::ObjectName};
use konverge_base::model::spec::Resource;

/// Generates the resources of a `network.Network`.
pub(crate) fn generate(call: &ModuleCall<'_>) -> Result<ModuleOutput, KusionError> {
    let mut config: NetworkConfig = call.read("network", call.developer)?;
    if config.ports.iter().any(|port| port.port == 0) {
        return Err(call.refuse("`ports`: 0 is not a port: write 1 to 65535"));
    }
    let platform: PlatformNetwork =
        call.read("the workspace's settings", &Value::Object(call.platform.clone()))?;
    let mut output = ModuleOutput::default();
    for public in [false, true] {
        let ports: Vec<_> = config.ports.iter().filter(|port| port.public == public).collect();
        if !ports.is_empty() {
            output.resources.push(service(call, &ports, &platform, public)?);
        }
    }
    let object = |kind: &str, namespace, labels, annotations, body| {
        let name = format!("{}-{}", call.unique_name(), kind.to_lowercase());
        let labels = merge_texts(labels, Map::new());
        let annotations = merge_texts(annotations, Map::new());
        let object = ObjectName::new("networking.k8s.io/v1", kind, namespace, &name);
        let body = with_entries(&body, &|_, value| !value.is_null());
        object.resource(call.app, &labels, &annotations, body)
    };
    if let Some(ingress) = &mut config.ingress {
        name_services(call, ingress, &config.ports)?;
        let body = json!({"spec": ingress, "status": {"loadBalancer": {}}});
        let namespace = Some(call.namespace);
        let resource = object("Ingress", namespace, &ingress.labels, &ingress.annotations, body)?;
        output.resources.push(resource);
    }
    if let Some(class) = &config.ingress_class {
        let body = json!({ "spec": class });
        let resource = object("IngressClass", None, &class.labels, &class.annotations, body)?;
        output.resources.push(resource);
    }
    Ok(output)
}

/// Returns the name of the Service for the public ports, or for the other ports.
fn service_name(call: &ModuleCall<'_>, public: bool) -> String {
    let suffix = if public { "public" } else { "private" };
    format!("{}-{suffix}", call.unique_name())
}

fn service(
    call: &ModuleCall<'_>,
    ports: &[&PortConfig],
    platform: &PlatformNetwork,
    public: bool,
) -> Result<Resource, KusionError> {
    let Some(workload) = call.workload else {
        return Err(call.refuse("ports need a workload"));
    };
    let own = WorkloadMetadata::deserialize(workload).unwrap_or_default();
    let mut labels = merge_texts(&own.labels, call.selector());
    let mut annotations = merge_texts(&own.annotations, Map::new());
    if public {
        let port = platform
            .port
            .as_ref()
            .map(|port| call.read("the workspace's `port`", port));
        let port: Option<PlatformPort> = port.transpose()?;
        let Some(port) = port.filter(|port| port.cloud.is_some()) else {
            return Err(call.refuse(
                "a public port needs `port: {type: aws}` or `alicloud` in the workspace's settings of `network`",
            ));
        };
        labels = merge_texts(&port.labels, labels);
        annotations = merge_texts(&port.annotations, annotations);
    }
    let name = service_name(call, public);
    let port = |config: &&PortConfig| {
        let protocol = json!(config.protocol);
        let lower = protocol.as_str().unwrap_or_default().to_lowercase();
        json!({
            "name": format!("{name}-{}-{lower}", config.port),
            "port": config.port,
            "protocol": protocol,
            "targetPort": config.target_port.filter(|port| *port != 0).unwrap_or(config.port),
        })
    };
    let spec = json!({
        "ports": ports.iter().map(port).collect::<Vec<_>>(),
        "selector": call.selector(),
        "type": if public { "LoadBalancer" } else { "ClusterIP" },
    });
    let object = ObjectName::new("v1", "Service", Some(call.namespace), &name);
    let body = json!({"spec": spec, "status": {"loadBalancer": {}}});
    object.resource(call.app, &labels, &annotations, body)
}

/// Names the Services of the backends that name none: the Service of the port.
fn name_services(
    call: &ModuleCall<'_>,
    ingress: &mut IngressConfig,
    ports: &[PortConfig],
) -> Result<(), KusionError> {
    let rules = ingress.rules.iter_mut().filter_map(|rule| rule.http.as_mut());
    let backends = rules
        .flat_map(|http| &mut http.paths)
        .map(|path| &mut path.backend);
    let backends = backends.chain(&mut ingress.default_backend);
    let services = backends.filter_map(|backend| backend.service.as_mut());
    for service in services.filter(|service| service.name.is_empty()) {
        let port = ports.iter().find(|port| service.port.number == Some(port.port));
        let port = port.ok_or_else(|| {
            call.refuse("ingress: a backend without the name of a Service needs the number of one of `ports`")
        })?;
        service.name = service_name(call, port.public);
    }
    Ok(())
}
