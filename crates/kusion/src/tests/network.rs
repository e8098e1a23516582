//! The module `network`.

use serde_json::{Value, json};

use super::{Stack, platform, service};

fn with_network(network: Value) -> Stack {
    let mut network = network;
    network["_type"] = json!("network.Network");
    let workload = service(json!({"labels": {"team": "a"}}));
    Stack::new(json!({"foo": {"workload": workload, "accessories": {"network": network}}}))
}

#[test]
fn ports_are_services_of_two_types() {
    let settings = "{port: {type: alicloud, labels: {kusionstack.io/control: 'true'}, annotations: {spec: slb.s1.small}}}";
    let ports = json!({"ports": [{"port": 80, "protocol": "TCP", "public": true}, {"port": 9090, "targetPort": 9091, "protocol": "UDP", "public": false}]});
    let stack = with_network(ports).workspace(&platform("network", settings));
    let public = stack.attributes("v1:Service:default:default-dev-foo-public");
    assert_eq!(public["spec"]["type"], "LoadBalancer");
    assert_eq!(
        public["spec"]["ports"],
        json!([{"name": "default-dev-foo-public-80-tcp", "port": 80, "protocol": "TCP", "targetPort": 80}])
    );
    assert_eq!(public["metadata"]["annotations"], json!({"spec": "slb.s1.small"}));
    assert_eq!(public["metadata"]["labels"]["kusionstack.io/control"], "true");
    assert_eq!(public["metadata"]["labels"]["team"], "a");
    let private = stack.attributes("v1:Service:default:default-dev-foo-private");
    assert_eq!(private["spec"]["type"], "ClusterIP");
    assert_eq!(private["spec"]["ports"][0]["targetPort"], 9091);
    assert_eq!(private["metadata"]["labels"].get("kusionstack.io/control"), None);
}

#[test]
fn a_public_port_needs_the_platform_s_word() {
    let ports = json!({"ports": [{"port": 80, "protocol": "TCP", "public": true}]});
    for workspace in ["", &platform("network", "{port: {labels: {}}}")] {
        let error = with_network(ports.clone())
            .workspace(workspace)
            .generate()
            .unwrap_err();
        assert!(error.to_string().contains("public port"), "{error}");
    }
    let wrong = with_network(ports)
        .workspace(&platform("network", "{port: {type: azure}}"))
        .generate();
    assert!(wrong.unwrap_err().to_string().contains("azure"));
    // The module looks at these settings for public ports only.
    let private = json!({"ports": [{"port": 80, "protocol": "TCP", "public": false}]});
    let made = with_network(private).workspace(&platform("network", "{port: {type: azure}}"));
    assert!(made.generate().is_ok());
}

#[test]
fn a_port_is_a_number_above_zero_and_its_target_is_the_same_if_left_out() {
    let port = |port: Value| with_network(json!({"ports": [port]}));
    let same = port(json!({"port": 80, "targetPort": 0, "protocol": "TCP"}));
    let service = same.attributes("v1:Service:default:default-dev-foo-private");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 80);
    let none = port(json!({"port": 0, "targetPort": 80, "protocol": "TCP"})).generate();
    let none = none.unwrap_err().to_string();
    assert!(none.contains("0 is not a port"), "{none}");
}

#[test]
fn an_ingress_finds_the_service_of_a_port() {
    let backend = json!({"service": {"port": {"number": 80}}});
    let network = json!({
        "ports": [{"port": 80, "protocol": "TCP", "public": false}],
        "ingress": {"ingressClassName": "nginx", "rules": [{"host": "example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}], "tls": [{"hosts": ["example.com"], "secretName": "tls"}]},
        "ingressClass": {"controller": "acme.io/ingress"},
    });
    let stack = with_network(network);
    let ingress = stack.attributes("networking.k8s.io/v1:Ingress:default:default-dev-foo-ingress");
    let path = &ingress["spec"]["rules"][0]["http"]["paths"][0];
    assert_eq!(
        path["backend"]["service"],
        json!({"name": "default-dev-foo-private", "port": {"number": 80}})
    );
    assert_eq!(
        ingress["spec"]["tls"],
        json!([{"hosts": ["example.com"], "secretName": "tls"}])
    );
    let class = stack.attributes("networking.k8s.io/v1:IngressClass:default-dev-foo-ingressclass");
    assert_eq!(class["spec"], json!({"controller": "acme.io/ingress"}));
    let lost = with_network(json!({"ingress": {"defaultBackend": backend}}))
        .generate()
        .unwrap_err();
    assert!(lost.to_string().contains("`ports`"), "{lost}");
}
