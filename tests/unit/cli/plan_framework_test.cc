#include <doctest/doctest.h>

#include "cli/plan_builder.h"
#include "tests/unit/cli/fake_machine.h"

using namespace dlaunch;

TEST_CASE("roles take ranks in their order, and say how many workers there are") {
  FakeMachine fake;
  const Plan plan = fake.plan({"--roles", "chief,worker=3,ps=2", "p"});
  CHECK(plan.nproc == 6);
  REQUIRE(plan.roles.size() == 3);
  CHECK(plan.roles[0].name == "chief");
  CHECK(plan.roles[1].first == 1);
  CHECK(plan.roles[1].count == 3);
  CHECK(plan.roles[2].first == 4);
  CHECK(fake.plan({"-n", "6", "--roles", "worker=4,ps=2", "p"}).roles.size() == 2);
  CHECK(fake.plan({"--nnodes", "2", "--rdzv", "tcp://here:29400", "--roles", "worker=4", "p"})
            .nproc == 2);
}

TEST_CASE("roles that contradict the job are refused") {
  FakeMachine fake;
  CHECK(fake.refused({"-n", "5", "--roles", "worker=4,ps=2", "p"}) ==
        "64 --roles: its roles have 6 ranks, and the job has 5");
  CHECK(fake.refused({"--roles", "worker=2", "--max-nproc", "4", "p"}) ==
        "64 --roles: its roles have 2 ranks, and this job may get more or fewer");
  CHECK(fake.refused({"--roles", "worker=2,worker=1", "p"}) ==
        "64 --roles: there are two roles 'worker'");
  CHECK(fake.refused({"--roles", "worker=2,=1", "p"}) ==
        "64 --roles: '=1' is not NAME or NAME=N, as in chief,worker=3,ps=2");
  CHECK(fake.refused({"--roles", "worker=0", "p"}).starts_with("64 --roles worker: '0' is not"));
  CHECK(fake.refused({"--roles", "worker=16384,ps", "p"}) ==
        "64 --roles: 16385 workers are more than 16384");
  CHECK(fake.refused({"--roles", "chief=2", "p"}) == "64 --roles: a job has one chief, not 2");
  CHECK(fake.refused({"--roles", "ps=2", "p"}) ==
        "64 --roles: no role does the work: add chief, or worker=N");
  CHECK(fake.refused({"--roles", "evaluator", "p"}).starts_with("64 --roles: no role does"));
}

TEST_CASE("a script that imports TensorFlow is recognized by its text") {
  FakeMachine fake;
  fake.kinds = {{"a.py", FileKind::plain}, {"there/a.py", FileKind::plain}};
  const auto framework = [&](const char* text, Words words = {"a.py", "--x"}) {
    fake.files["a.py"] = text;
    return fake.plan(words).framework;
  };
  CHECK(framework("import os\n  import tensorflow as tf\n") == Framework::tensorflow_if_possible);
  CHECK(framework("from tensorflow.keras import layers") == Framework::tensorflow_if_possible);
  CHECK(framework("import tf_keras") == Framework::tensorflow_if_possible);
  CHECK(framework("import tensorflow_datasets") == Framework::automatic);
  CHECK(framework("x = 'import tensorflow'") == Framework::automatic);
  CHECK(framework("import tensorflow as tf\nimport horovod.tensorflow as hvd\n") ==
        Framework::automatic);
  CHECK(framework("import tensorflow", {"--framework", "none", "a.py"}) == Framework::none);
  CHECK(framework("import tensorflow", {"--port-range", "5000-5009", "a.py"}) ==
        Framework::automatic);
  CHECK(framework("import tensorflow", {"-n", "1025", "a.py"}) ==
        Framework::tensorflow_if_possible);
  CHECK(framework("import tensorflow", {"--chdir", "there", "a.py"}) == Framework::automatic);
  fake.files["there/a.py"] = "import tensorflow";
  CHECK(framework("", {"--chdir", "there", "a.py"}) == Framework::tensorflow_if_possible);
}

TEST_CASE("frameworks, and how many workers TF_CONFIG has room for") {
  FakeMachine fake;
  CHECK(fake.plan({"p"}).framework == Framework::automatic);
  CHECK(fake.plan({"--framework", "tensorflow", "p"}).framework == Framework::tensorflow);
  CHECK(fake.plan({"--framework", "none", "p"}).framework == Framework::none);
  CHECK(fake.refused({"--framework", "tensorflo", "p"}) ==
        "64 --framework: 'tensorflo' is not one of auto, tensorflow, none; did you mean "
        "'tensorflow'?");
  CHECK(fake.plan({"-n", "1025", "p"}).nproc == 1025);
  CHECK(fake.refused({"-n", "1025", "--framework", "tensorflow", "p"}) ==
        "64 --framework: TF_CONFIG has room for 1024 workers, and the job has 1025");
}
