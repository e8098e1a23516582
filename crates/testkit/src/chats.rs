//! Fake chat services that refuse a wrong signature, following the samples of their vendors (`chats.py`).

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::Value;

use super::service::{Ports, Service, folder};

/// The key of the robot of DingTalk.
pub const DINGTALK_KEY: &str = "SEC0ding-key-5ba1";
/// The key of the bot of Feishu.
pub const FEISHU_KEY: &str = "feishu-key-c07d";
/// The key in the address of the robot of WeCom.
const WECOM_KEY: &str = "wecom-key-11fe";
/// The token in the addresses of the other chats.
const TOKEN: &str = "chat-token-6e2a";

/// The running fake chat services.
pub struct Chats {
    service: Service,
    ports: Ports,
}

impl Chats {
    pub fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let folder = folder(&format!("chats-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        let ports = Ports::claim();
        let mut command = Command::new(super::kcl::interpreter());
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/chats.py"))
            .arg(ports.nth(1).to_string())
            .args([DINGTALK_KEY, FEISHU_KEY, WECOM_KEY, TOKEN]);
        let mut service = Service::start("chats", &command, &folder);
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self { service, ports }
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.nth(1))
    }

    /// Returns the address of a robot, with its secrets.
    pub fn url(&self, kind: &str) -> String {
        let query = match kind {
            "dingtalk" => format!("?access_token={TOKEN}"),
            "wecom" => format!("?key={WECOM_KEY}"),
            _ => format!("/{TOKEN}"),
        };
        format!("{}/{kind}{query}", self.address())
    }

    /// Sets the responses to the next messages, whatever the messages are.
    pub async fn answer_next(&self, answers: &[(u16, &str)]) {
        let client = reqwest::Client::new();
        let sent = client
            .post(format!("{}/next", self.address()))
            .json(&answers)
            .send()
            .await;
        sent.and_then(reqwest::Response::error_for_status).unwrap();
    }

    /// Returns the messages that were accepted or answered by [`Self::answer_next`], with their kinds.
    pub async fn seen(&self) -> Vec<(String, Value)> {
        let answer = reqwest::get(self.address()).await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    }
}
