"""The model list of these tests, as text."""

HEADER = "model_id,revision,library,model_type,model_class,family,task,params,tier,weights,package,phases"
SHA = "0" * 40
MODELS = (
    f"acme/alpha,{SHA},transformers,alpha,AlphaModel,text-encoder,fill-mask,,smoke,synthetic,,",
    f"acme/beta,{SHA},transformers,beta,BetaForCausalLM,decoder-dense,text-generation,,smoke,synthetic,,",
    f"acme/gamma-one,{SHA},transformers,gamma,GammaModel,vision,image-classification,12,nightly,synthetic,,",
)
