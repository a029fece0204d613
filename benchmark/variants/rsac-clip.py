"""What happens if long gradients are shortened, as is usual with memories (arXiv:1211.5063)?"""

from variant import changed

ARGUMENT = (
    '    add("--alpha"',
    '    add("--max-grad-norm", type=number(0), default=10.0, help="of a gradient")\n'
    '    add("--alpha"',
)
STEPS = [
    (
        f'    optimizers["{name}"].step()\n',
        f"    nn.utils.clip_grad_norm_(agent.{name}.parameters(), args.max_grad_norm)\n"
        f'    optimizers["{name}"].step()\n',
    )
    for name in ("critics", "actor")
]
exec(changed(__file__, ARGUMENT, *STEPS))
