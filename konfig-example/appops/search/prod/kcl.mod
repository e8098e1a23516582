[package]
name = "search_prod"
edition = "v0.13.0"
version = "0.1.0"

[dependencies]
kam = { path = "../../../modules/kam" }
network = { path = "../../../modules/network" }
service = { path = "../../../modules/service" }

[profile]
entries = ["../base/base.k", "main.k"]
