//! `portal.publish`: the drift job writes the pages.

use std::fs;

use crate::support::ci_stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn the_drift_job_writes_pages_with_what_it_found() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!(
        "portal: {{publish: 'file://{}/pages'}}\n",
        folder.path().display()
    );
    let mut stage = Stage::small(&url).await;
    stage.reviewed(7, "portal", |stage| {
        stage.stack("calm/dev", &[("portal-calm", "one")]);
        stage.stack("loose/dev", &[("portal-loose", "one")]);
    });
    stage.merge(7, "portal").outcome.check(0);
    stage.by_hand("portal-loose", Some("two")).await;
    stage.schedule().outcome.check(0);

    let overview = fs::read_to_string(folder.path().join("pages/index.html")).unwrap();
    assert!(overview.contains("compared with commit"), "{overview}");
    let (drifted, applied) = (
        overview.find("loose/dev").unwrap(),
        overview.find("calm/dev").unwrap(),
    );
    assert!(
        drifted < applied && overview.contains("data-conditions=\"drifted\""),
        "{overview}"
    );
    assert!(overview.contains("Drift since"), "{overview}");
    let page = fs::read_to_string(folder.path().join("pages/stacks/loose@dev/index.html")).unwrap();
    assert!(page.contains("#7"), "the record names its pull request: {page}");
    // What the drift is, who says so, and how the objects are.
    for words in [
        "<del>-  value: two</del>",
        "<ins>+  value: one</ins>",
        "href=\"https://github.com/acme/konfig/issues/",
        "href=\"https://github.com/acme/konfig/actions/runs/",
        "href=\"https://github.com/acme/konfig/pull/7\"",
        "Live objects: 1 ready, looked at",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let trends = fs::read_to_string(folder.path().join("pages/trends.html")).unwrap();
    assert!(
        trends.contains("2 this week"),
        "two stacks were applied: {trends}"
    );
    let permissions = fs::read_to_string(folder.path().join("pages/permissions.html")).unwrap();
    assert!(
        permissions.contains("of the default branch at commit"),
        "{permissions}"
    );

    // A place that cannot be written is a warning, and the drift check is as good as before.
    fs::remove_dir_all(folder.path().join("pages")).unwrap();
    fs::write(folder.path().join("pages"), "a file").unwrap();
    let job = stage.schedule();
    job.outcome.check(0);
    let said = format!("{}{}", job.outcome.stdout, job.outcome.stderr);
    assert!(said.contains("the portal could not be published"), "{said}");
}
