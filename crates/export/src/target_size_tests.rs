//! How large objects are carried, split and refused.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

/// Gives texts in which nothing repeats.
fn noise() -> impl FnMut(usize) -> String {
    let mut state = 7_u64;
    move |count| {
        let digits = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(
                b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"[(state >> 58) as usize],
            )
        });
        digits.take(count).collect()
    }
}

/// The chart holds a token for the data of a Secret, and the release the data twice.
#[test]
fn the_data_of_secrets_counts_in_the_size_of_a_release() {
    let mut noise = noise();
    let secret = |name: &str, data: String| {
        let body = object("v1", "Secret", name, json!({"data": {"x": data}}));
        kubernetes(&format!("v1:Secret:ns:{name}"), body, &[])
    };
    let large = spec(vec![secret("large", noise(1_000_000))]);
    let found = refusals(exported(&large, &TARGETS[0]()));
    assert!(
        matches!(&found[..], [(id, Why::TooLarge(..))] if id == "v1:Secret:ns:large"),
        "{found:?}"
    );
    let two = spec(vec![secret("a", noise(400_000)), secret("b", noise(400_000))]);
    let split = exported(&two, &TARGETS[0]()).unwrap();
    let charts = split.files.keys().filter(|path| path.ends_with("Chart.yaml"));
    assert_eq!(
        charts.collect::<Vec<_>>(),
        ["shop-dev-1/Chart.yaml", "shop-dev-2/Chart.yaml"]
    );
    // What repeats is small in a release.
    let same = spec(vec![secret("same", "QUFB".repeat(250_000))]);
    assert!(exported(&same, &TARGETS[0]()).is_ok());
}

/// 900 KiB that no compressor makes smaller. A release of Helm holds it twice: it is refused by name.
#[test]
fn large_data_that_does_not_compress_survives_each_target_that_can_store_it() {
    let body = config("large", json!({"x": noise()(900 * 1024)}));
    let all = spec(vec![kubernetes("v1:ConfigMap:ns:large", body.clone(), &[])]);
    let found = refusals(exported(&all, &TARGETS[0]()));
    assert!(matches!(found[0].1, Why::TooLarge(..)), "{found:?}");
    for target in &TARGETS[1..] {
        let exported = exported(&all, &target()).unwrap();
        assert_eq!(objects(&exported)["large"], body, "{}", target().name());
    }
}

/// Definitions go into a chart of their own, and a chart that a release cannot store is split.
#[test]
fn charts_are_split_by_kind_and_by_size() {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.x.io"},
        "spec": {"group": "x.io", "names": {"kind": "Thing"}, "scope": "Namespaced"}});
    let thing = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let mut resources = vec![kubernetes("crd", definition, &[]), kubernetes("t", thing, &[])];
    let mut noise = noise();
    for number in 0..6 {
        let id = format!("v1:ConfigMap:ns:c{number}");
        let before = format!("v1:ConfigMap:ns:c{}", number - 1);
        let depends: &[&str] = if number > 0 { &[&before] } else { &[] };
        resources.push(kubernetes(
            &id,
            config(&format!("c{number}"), json!({"x": noise(200_000)})),
            depends,
        ));
    }
    let all = spec(resources.clone());
    let split = exported(&all, &TARGETS[0]()).unwrap();
    let charts: Vec<_> = split
        .files
        .keys()
        .filter(|path| path.ends_with("Chart.yaml"))
        .collect();
    assert_eq!(
        charts,
        [
            "shop-dev-1/Chart.yaml",
            "shop-dev-2/Chart.yaml",
            "shop-dev-3/Chart.yaml",
            "shop-dev-crds/Chart.yaml"
        ]
    );
    let keep = text(
        &split,
        "shop-dev-crds/manifests/000-customresourcedefinition-things.x.io.yaml",
    );
    assert!(keep.contains("helm.sh/resource-policy: keep"));
    let objects = split.document.levels.iter().flatten();
    let chart_of: BTreeMap<_, _> = objects
        .map(|object| (&object.id, object.file.split('/').next().unwrap()))
        .collect();
    // Charts are installed one after the other; in one, nothing orders objects of one kind.
    let (kept, lost) = (&split.document.kept, &split.document.lost);
    assert_eq!((kept.len(), lost.len()), (3, 3));
    for edge in kept {
        assert!(
            chart_of[&edge.from] != chart_of[&edge.to] && edge.holds == Holds::Ready,
            "{edge:?}"
        );
    }
    for edge in lost {
        assert!(
            chart_of[&edge.from] == chart_of[&edge.to] && edge.lost == Loss::Order,
            "{edge:?}"
        );
    }
    resources.push(kubernetes(
        "v1:ConfigMap:ns:z",
        config("z", json!({"x": noise(900_000)})),
        &[],
    ));
    let found = refusals(exported(&spec(resources), &TARGETS[0]()));
    assert!(
        matches!(&found[0], (id, Why::TooLarge(..)) if id == "v1:ConfigMap:ns:z"),
        "{found:?}"
    );
}
