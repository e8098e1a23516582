//! The module `network`: Services, an Ingress and an IngressClass.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    call::{ModuleCall, ModuleOutput, merge_texts},
    network_settings::{
        BackendConfig, IngressConfig, NetworkConfig, PathConfig, PlatformNetwork, PlatformPort, PortConfig,
        WorkloadMetadata,
    },
};
use crate::{KusionError, kubernetes_object::ObjectName};
use konverge_base::model::spec::Resource;

/// Generates the resources of a `network.Network`.
pub(crate) fn generate(call: &ModuleCall<'_>) -> Result<ModuleOutput, KusionError> {
    let config: NetworkConfig = call.read("network", call.developer)?;
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
    let object = |kind, namespace, suffix: &str, labels, annotations, body: Value| {
        let name = format!("{}-{suffix}", call.unique_name());
        let object = ObjectName {
            api_version: "networking.k8s.io/v1",
            kind,
            namespace,
            name: &name,
        };
        let (labels, annotations) = (
            merge_texts(labels, Map::new()),
            merge_texts(annotations, Map::new()),
        );
        object.resource(
            call.app,
            &labels,
            &annotations,
            body.as_object().cloned().unwrap_or_default(),
        )
    };
    if let Some(ingress) = &config.ingress {
        let spec = ingress_spec(call, ingress, &config.ports)?;
        let body = json!({"spec": spec, "status": {"loadBalancer": {}}});
        let namespace = Some(call.namespace);
        let resource = object(
            "Ingress",
            namespace,
            "ingress",
            &ingress.labels,
            &ingress.annotations,
            body,
        )?;
        output.resources.push(resource);
    }
    if let Some(class) = &config.ingress_class {
        let mut spec = Map::new();
        if let Some(controller) = &class.controller {
            spec.insert("controller".to_owned(), json!(controller));
        }
        if let Some(parameters) = &class.parameters {
            spec.insert("parameters".to_owned(), json!(parameters));
        }
        let body = json!({ "spec": spec });
        let resource = object(
            "IngressClass",
            None,
            "ingressclass",
            &class.labels,
            &class.annotations,
            body,
        )?;
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
    let (mut labels, mut annotations) = (
        merge_texts(&own.labels, call.selector()),
        merge_texts(&own.annotations, Map::new()),
    );
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
    let object = ObjectName {
        api_version: "v1",
        kind: "Service",
        namespace: Some(call.namespace),
        name: &name,
    };
    let body = Map::from_iter([
        ("spec".to_owned(), spec),
        ("status".to_owned(), json!({"loadBalancer": {}})),
    ]);
    object.resource(call.app, &labels, &annotations, body)
}

fn ingress_spec(
    call: &ModuleCall<'_>,
    ingress: &IngressConfig,
    ports: &[PortConfig],
) -> Result<Map<String, Value>, KusionError> {
    let mut spec = Map::new();
    if let Some(default) = &ingress.default_backend {
        spec.insert("defaultBackend".to_owned(), backend(call, default, ports)?);
    }
    if let Some(class) = &ingress.ingress_class_name {
        spec.insert("ingressClassName".to_owned(), json!(class));
    }
    let mut rules = Vec::new();
    for config in &ingress.rules {
        let mut rule = Map::new();
        if let Some(host) = &config.host {
            rule.insert("host".to_owned(), json!(host));
        }
        if let Some(http) = &config.http {
            let paths = http.paths.iter().map(|path| ingress_path(call, path, ports));
            let paths = paths.collect::<Result<Vec<_>, _>>()?;
            rule.insert("http".to_owned(), json!({ "paths": paths }));
        }
        rules.push(Value::Object(rule));
    }
    if !rules.is_empty() {
        spec.insert("rules".to_owned(), Value::Array(rules));
    }
    if !ingress.tls.is_empty() {
        spec.insert("tls".to_owned(), json!(ingress.tls));
    }
    Ok(spec)
}

fn ingress_path(
    call: &ModuleCall<'_>,
    config: &PathConfig,
    ports: &[PortConfig],
) -> Result<Value, KusionError> {
    let mut path = Map::new();
    path.insert("backend".to_owned(), backend(call, &config.backend, ports)?);
    if let Some(text) = &config.path {
        path.insert("path".to_owned(), json!(text));
    }
    if let Some(kind) = &config.path_type {
        path.insert("pathType".to_owned(), json!(kind));
    }
    Ok(Value::Object(path))
}

fn backend(
    call: &ModuleCall<'_>,
    config: &BackendConfig,
    ports: &[PortConfig],
) -> Result<Value, KusionError> {
    let mut backend = Map::new();
    if let Some(service) = &config.service {
        let name = match service.name.as_str() {
            "" => {
                let port = ports.iter().find(|port| service.port.number == Some(port.port));
                let port = port.ok_or_else(|| {
                    call.refuse(
                        "ingress: a backend without the name of a Service needs the number of one of `ports`",
                    )
                })?;
                service_name(call, port.public)
            }
            name => name.to_owned(),
        };
        backend.insert("service".to_owned(), json!({"name": name, "port": service.port}));
    }
    if let Some(resource) = &config.resource {
        backend.insert("resource".to_owned(), json!(resource));
    }
    Ok(Value::Object(backend))
}
