[package]
name = "service"
edition = "v0.13.0"
version = "0.2.1"
description = "A workload that runs all the time"

[dependencies]
kam = { path = "../kam" }
