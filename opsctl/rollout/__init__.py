"""Steps and playbooks: what a deploy, restart, rollback, smoke, plan or doctor does."""
