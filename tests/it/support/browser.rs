//! A real browser, for looking at pages.

use super::executable;
use super::service::folder;
use std::path::Path;
use std::process::Command;

/// The page after its scripts ran, as the browser writes it out. Installed by `scripts/parts install all`.
pub fn dom(page: &Path) -> String {
    let folder = folder("chromium");
    let output = Command::new(executable("chromium", "chromium"))
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", &folder)
        .output()
        .expect("the browser can be started");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("a page is UTF-8")
}
