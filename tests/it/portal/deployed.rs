//! The KCL of the example that deploys the portal: it compiles under the example's policies, its configuration is
//! valid, and its pods have no account of the cluster.

use konverge_base::model::RepoPath;
use konverge_config::Config;
use serde_json::{Value, json};

use crate::support::{git::Repository, process::Konverge};

#[test]
fn the_example_deploys_a_portal_without_an_account_of_the_cluster() {
    let repository = Repository::konfig_example();
    repository
        .write("appops/portal/project.yaml", "name: portal\n")
        .write("appops/portal/prod/stack.yaml", "name: prod\n")
        .write(
            "appops/portal/prod/kcl.yaml",
            "kcl_cli_configs:\n  files:\n    - ${KCL_MOD}/base/examples/portal.k\n",
        );
    repository.commit("the portal");
    let built = Konverge::new(["build", "portal/prod", "--output", "json"])
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(0);
    let built: Value = serde_json::from_str(&built.stdout).unwrap();
    let of_kind = |kind: &str| -> Value {
        let resources = built["resources"].as_array().unwrap();
        let mut found = resources.iter().map(|resource| &resource["attributes"]);
        found
            .find(|object| object["kind"] == kind)
            .cloned()
            .unwrap_or_else(|| panic!("no {kind}"))
    };
    let pod = of_kind("Deployment")["spec"]["template"]["spec"].clone();
    assert_eq!(pod["automountServiceAccountToken"], false);
    let container = &pod["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "serve",
            "--listen",
            "0.0.0.0:8080",
            "--config",
            "/etc/konverge/konverge.yaml"
        ])
    );
    assert_eq!(of_kind("ServiceAccount")["automountServiceAccountToken"], false);
    assert_eq!(
        of_kind("Secret")["stringData"]["KONVERGE_PORTAL_KEY"],
        json!({"$secret": {"ref": "job:KONVERGE_PORTAL_KEY"}})
    );
    assert_eq!(of_kind("Service")["spec"]["ports"][0]["port"], 80);
    let text = of_kind("ConfigMap")["data"]["konverge.yaml"]
        .as_str()
        .unwrap()
        .to_owned();
    let portal = Config::parse(&text).unwrap().portal;
    assert!(portal.login.is_some());
    let shop = portal.grants_of_groups(&["shop".to_owned()]);
    let folder = |path: &str| RepoPath::normalize(path).unwrap();
    assert!(shop.may_see(&folder("appops/storefront/prod")) && !shop.may_see(&folder("appops/orders/prod")));
    assert!(!shop.may_operate(&folder("appops/storefront/prod")));
}
