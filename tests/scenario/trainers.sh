# Programs of Lightning, Accelerate, Hugging Face's Trainer and DeepSpeed run unchanged on CPUs, and with dlring instead
# of gloo if the program may choose. The weights are the same. dlaunch reports a kill, and after a restart the training
# ends. TORCH_PYTHON names a Python with the libraries to test.
source "$SOURCE/tests/scenario/common.sh"
python=${TORCH_PYTHON:-/usr/bin/python3}
has() { "$python" -c "import $1" 2>/dev/null; }
here=()
for name in lightning accelerate transformers deepspeed; do has $name && here+=($name); done
[ ${#here[@]} -gt 0 ] || skip "no Lightning, Accelerate, Transformers or DeepSpeed: TORCH_PYTHON names a Python that has some"
export PYTHONPATH="$BUILD/python" OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore HF_HUB_OFFLINE=1 DS_ACCELERATOR=cpu CUDA_VISIBLE_DEVICES=
backends="gloo dlring"
has dlaunch.torch || { backends=gloo; echo "dlaunch.torch has no library for this PyTorch: dlring is not tried"; }

cat >common_parts.py <<'P'
import os, signal, torch
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def rows():
    torch.manual_seed(1)
    x = torch.randn(64, 8)
    return x, x.sum(1, keepdim=True)
def may_die():  # in the middle of the training
    if os.environ.get("DIE") == str(rank) and os.environ["DLAUNCH_ROUND"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
def tell(weight):
    backend = torch.distributed.get_backend() if world > 1 else "-"
    print(f"trained by {backend}:", *(f"{w:.5f}" for w in weight.detach().ravel().tolist()[:8]), flush=True)
P
cat >lightning.program <<'P'
import sys, torch, lightning
from lightning.pytorch.strategies import DDPStrategy
from common_parts import *
if sys.argv[1] == "dlring": import dlaunch.torch
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, i):
        if i == 2: may_die()
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows()), batch_size=16 // world)
trainer = lightning.Trainer(accelerator="cpu", devices=world, strategy=DDPStrategy(process_group_backend=sys.argv[1]), max_epochs=2,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = Model()
trainer.fit(model, loader)
assert (trainer.global_rank, trainer.world_size) == (rank, world)
tell(model.layer.weight)
P
cat >accelerate.program <<'P'
import sys, torch
from accelerate import Accelerator
from common_parts import *
if sys.argv[1] == "dlring":  # Accelerate takes the group that it finds
    import dlaunch.torch
    torch.distributed.init_process_group("dlring")
accelerator = Accelerator(cpu=True)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*rows()), batch_size=16 // world)
model = torch.nn.Linear(8, 1)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        if i == 2: may_die()
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
assert (accelerator.process_index, accelerator.num_processes) == (rank, world)
tell(accelerator.unwrap_model(model).weight)
P
cat >transformers.program <<'P'
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from common_parts import *
if sys.argv[1] == "dlring":
    import dlaunch.torch
    torch.distributed.init_process_group("dlring")
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return {"input_ids": torch.arange(i, i + 8) % 50, "labels": torch.tensor(i % 2)}
torch.manual_seed(1)
model = BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=32, hidden_dropout_prob=0, attention_probs_dropout_prob=0))
class Die(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 2: may_die()
trainer = Trainer(model=model, train_dataset=Rows(), callbacks=[Die()], args=TrainingArguments("trained", use_cpu=True, num_train_epochs=1, optim="sgd",
    per_device_train_batch_size=16 // world, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, learning_rate=0.1))
trainer.train()
assert (trainer.args.process_index, trainer.args.world_size) == (rank, world)
tell(model.classifier.weight)
P
cat >deepspeed.program <<'P'
import sys, torch, deepspeed
from common_parts import *
if sys.argv[1] == "dlring": import dlaunch.torch
deepspeed.init_distributed(dist_backend=sys.argv[1])
x, y = rows()
model = torch.nn.Linear(8, 1)
each = 16 // world
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={"train_micro_batch_size_per_gpu": each,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True})
for epoch in range(2):
    for i in range(4):
        if i == 2: may_die()
        part = slice(16 * i + each * rank, 16 * i + each * (rank + 1))
        engine.backward(torch.nn.functional.mse_loss(engine(x[part]), y[part]))
        engine.step()
tell(engine.module.weight)
P
for name in "${here[@]}"; do
  for backend in $backends; do
    run dlaunch --nproc 2 "$python" $name.program $backend; expect_code 0
    [ "$(grep -c "trained by $backend:" out)" = 2 ] || fail "$name: not both ranks trained by $backend"
    grep -o 'trained by .*' out | sed 's/.*: //' | sort -u >>$name.weights
  done
  [ "$(sort -u $name.weights | wc -l)" = 1 ] || fail "$name: $(cat $name.weights)"
  run dlaunch --nproc 2 -x DIE=1 "$python" $name.program ${backends##* }
  expect_code 137; expect_err 'rank 1 \(.*failed first: killed by SIGKILL'
  run dlaunch --nproc 2 -x DIE=1 --max-restarts 1 "$python" $name.program ${backends##* }
  expect_code 0; [ "$(grep -c "trained by" out)" = 2 ] || fail "$name: not both ranks came to the end after a restart"
  echo "$name: right, by $backends"
done
